package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
)

// What Apache Kafka 4.4.0 says about small configurations.
const golden = "testdata/kafka"

func readGolden(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestKeyTableEqualsKafkas(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(golden, "config-keys.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	if keysTSV != string(want) {
		t.Errorf("keys.tsv differs from what Kafka 4.4.0 has")
	}
	for scope, n := range map[Scope]int{ScopeBroker: 379, ScopeTopic: 38, ScopeGroup: 27, ScopeClientMetrics: 3, ScopeBrokerDynamic: 3, ScopeUserClient: 6, ScopeIP: 1} {
		if got := len(Keys(scope)); got != n {
			t.Errorf("Keys(%s): %d keys, want %d", scope, got, n)
		}
	}
}

func TestEveryDefaultPassesItsOwnCheck(t *testing.T) {
	for _, scope := range []Scope{ScopeBroker, ScopeTopic, ScopeGroup, ScopeClientMetrics, ScopeOwn} {
		for _, k := range Keys(scope) {
			if k.Null || k.Required {
				continue
			}
			got, err := k.Check(k.Default)
			if err != nil || got != k.Default {
				t.Errorf("%s %s: Check(%q) = %q, %v; want the same text", scope, k.Name, k.Default, got, err)
			}
		}
	}
}

// stricter are the cases that Kafka accepts and varve refuses on purpose.
var stricter = map[string]string{
	"transaction-two-phase": "two-phase commit would be ignored silently: transaction.two.phase.commit.enable: not supported",
}

func TestServerConfigIsJudgedAsByKafka(t *testing.T) {
	var cases []struct {
		ID, Result, Exception, Message string
		Properties                     map[string]string
	}
	readGolden(t, "server-config.json", &cases)
	if len(cases) < 40 {
		t.Fatalf("%d cases, want all of them", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			var file strings.Builder
			for _, k := range sortedNames(c.Properties) {
				v := strings.ReplaceAll(c.Properties[k], "{{DATA}}", "/data")
				file.WriteString(k + "=" + v + "\n")
			}
			_, _, err := Load(Sources{Files: []File{{Path: "server.properties", Data: []byte(file.String())}}})
			switch {
			case stricter[c.ID] != "":
				if err == nil {
					t.Errorf("accepted; want it refused: %s", stricter[c.ID])
				}
			case c.Result == "ok" && err != nil:
				t.Errorf("refused: %v; Kafka accepts it", err)
			case c.Result != "ok" && err == nil:
				t.Errorf("accepted; Kafka says %s", c.Message)
			case c.Result != "ok" && !strings.Contains(err.Error(), c.Message):
				t.Errorf("error text\n%v\ndoes not contain Kafka's\n%s", err, c.Message)
			}
		})
	}
}

// ownDefaults is the case where the image's default file stands for the
// defaults that varve has built in.
const ownDefaults = "docker-env-none"

func TestContainerEnvironmentBecomesTheSameProperties(t *testing.T) {
	var cases []struct {
		ID        string
		Env       map[string]string
		Mounted   []string
		FinalFile []string
		Exit      int
		Error     []string
	}
	readGolden(t, "docker-env.json", &cases)
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			var env []string
			for _, name := range sortedNames(c.Env) {
				env = append(env, name+"="+c.Env[name])
			}
			got := map[string]string{}
			mounted, err := ParseProperties([]byte(strings.Join(c.Mounted, "\n")))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range mounted {
				got[p.Key] = p.Value
			}
			settings, errs, _ := environment(env, true)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			for _, s := range settings {
				got[s.Key] = s.Value
			}
			if c.ID == ownDefaults {
				if len(got) != 0 {
					t.Errorf("settings %v, want none", got)
				}
				return
			}
			if c.Exit != 0 {
				// Kafka drops its default file and then misses process.roles;
				// varve fills from its own defaults.
				if _, _, err := Load(Sources{Env: env, KafkaEnv: true}); err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			final, err := ParseProperties([]byte(strings.Join(c.FinalFile, "\n")))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, p := range final {
				want[p.Key] = p.Value
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("settings %v, want %v", got, want)
			}
		})
	}
}

func TestTopicIsDescribedAsByKafka(t *testing.T) {
	var c struct{ Stdout []string }
	readGolden(t, "configs-describe-topic-all.json", &c)
	base, _, err := Load(Sources{Files: []File{{"f", []byte("process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@h:1\n" +
		"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs=/d\nlog.retention.ms=-1\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	b, ignored := base.WithDynamic(map[string]string{"min.insync.replicas": "1"}, nil)
	if len(ignored) > 0 {
		t.Fatalf("ignored %v", ignored)
	}
	var got []string
	for _, e := range b.DescribeTopic(map[string]string{"retention.ms": "604800000000", "min.insync.replicas": "1"}, nil) {
		got = append(got, renderEntry(e))
	}
	want := c.Stdout[1:]
	sort.Strings(want)
	sort.Strings(got)
	if len(got) != len(want) || len(want) != 37 {
		t.Fatalf("%d keys, want %d, which is 37", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
}

// renderEntry is the line of kafka-configs.
func renderEntry(e Entry) string {
	names := map[Source]string{SourceTopic: "DYNAMIC_TOPIC_CONFIG", SourceDynamicBroker: "DYNAMIC_BROKER_CONFIG",
		SourceDynamicDefault: "DYNAMIC_DEFAULT_BROKER_CONFIG", SourceStatic: "STATIC_BROKER_CONFIG", SourceDefault: "DEFAULT_CONFIG", SourceGroup: "DYNAMIC_GROUP_CONFIG"}
	var syn []string
	for _, s := range e.Synonyms {
		syn = append(syn, names[s.Source]+":"+s.Name+"="+s.Value)
	}
	return "  " + e.Name + "=" + e.Value + " sensitive=false synonyms={" + strings.Join(syn, ", ") + "}"
}

func TestGroupIsDescribedAsByKafka(t *testing.T) {
	b := defaults(t)
	all := b.DescribeGroup(map[string]string{"consumer.session.timeout.ms": "50000"}, nil)
	if len(all) != 21 {
		t.Errorf("%d keys, want 21", len(all))
	}
	got := b.DescribeGroup(map[string]string{"consumer.session.timeout.ms": "50000"}, []string{"consumer.session.timeout.ms"})
	want := "  consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}"
	if len(got) != 1 || renderEntry(got[0]) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func defaults(t *testing.T) *Broker {
	t.Helper()
	b, _, err := Load(Sources{DataDir: "/data"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
