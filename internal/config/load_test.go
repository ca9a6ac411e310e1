package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const valid = "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@h:9093\n" +
	"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs=/d\n"

func load(t *testing.T, file string) (*Broker, []Warning, error) {
	t.Helper()
	return Load(Sources{Files: []File{{"server.properties", []byte(file)}}})
}

func TestWithoutAnySourceTheDefaultsOfConventionsHold(t *testing.T) {
	b := defaults(t)
	if b.NodeID != 1 || len(b.LogDirs) != 1 || b.LogDirs[0] != "/data" || b.MetadataLogDir != "/data" {
		t.Errorf("node %d, dirs %v, metadata %q", b.NodeID, b.LogDirs, b.MetadataLogDir)
	}
	want := []Listener{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, false}}
	if diff := cmp.Diff(want, b.Listeners); diff != "" {
		t.Errorf("listeners: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(want, b.Advertised); diff != "" {
		t.Errorf("advertised: -want +got\n%s", diff)
	}
	if !b.AutoCreateTopics || !b.AutoFormat || b.Topic.SegmentBytes != 1<<30 || b.Topic.RetentionTime != 7*24*3600*1000 {
		t.Errorf("defaults %+v", b)
	}
	if v, source := b.Value("listeners"); v != "PLAINTEXT://127.0.0.1:9092" || source != SourceDefault {
		t.Errorf("listeners = %q from %d", v, source)
	}
}

func TestLaterSourcesWin(t *testing.T) {
	flag := func(kind OriginKind, name, value string) Setting {
		return Setting{Key: "num.partitions", Value: value, Origin: Origin{Kind: kind, Name: name}}
	}
	file := File{"a", []byte(valid + "num.partitions=2\n")}
	tests := []struct {
		name   string
		src    Sources
		want   int32
		origin string
	}{
		{"the last file", Sources{Files: []File{file, {"b", []byte("num.partitions=3\n")}}}, 3, "b:1"},
		{"a variable over files", Sources{Files: []File{file}, Env: []string{"VARVE_NUM_PARTITIONS=4"}}, 4, "env VARVE_NUM_PARTITIONS"},
		{"Kafka's variables over files when asked for", Sources{Files: []File{file}, KafkaEnv: true, Env: []string{"KAFKA_NUM_PARTITIONS=5"}}, 5, "env KAFKA_NUM_PARTITIONS"},
		{"varve's variables over Kafka's", Sources{Files: []File{file}, KafkaEnv: true, Env: []string{"VARVE_NUM_PARTITIONS=6", "KAFKA_NUM_PARTITIONS=5"}}, 6, "env VARVE_NUM_PARTITIONS"},
		{"flags over variables, the last one first", Sources{Files: []File{file}, Env: []string{"VARVE_NUM_PARTITIONS=4"},
			Flags: []Setting{flag(FromOverride, "", "7"), flag(FromFlag, "--num.partitions", "8")}}, 8, "--num.partitions"},
		{"an override", Sources{Files: []File{file}, Flags: []Setting{flag(FromOverride, "", "7")}}, 7, "--override"},
		{"without anything else the file", Sources{Files: []File{file}, Env: []string{"KAFKA_NUM_PARTITIONS=5"}}, 2, "a:7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, _, err := Load(tt.src)
			if err != nil {
				t.Fatal(err)
			}
			if b.NumPartitions != tt.want || b.Origin("num.partitions").String() != tt.origin {
				t.Errorf("%d from %s, want %d from %s", b.NumPartitions, b.Origin("num.partitions"), tt.want, tt.origin)
			}
		})
	}
}

func TestEveryErrorIsReportedWithItsPlace(t *testing.T) {
	_, _, err := load(t, valid+"num.partitions=1g\nlog.segment.bytes=10\ncompression.type=brotli\nlog.retention.ms=0\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092\n")
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error %v", err)
	}
	want := strings.Join([]string{
		"server.properties:7: num.partitions: Invalid value 1g for configuration num.partitions: Not a number of type INT",
		"server.properties:8: log.segment.bytes: Invalid value 10 for configuration log.segment.bytes: Value must be at least 1048576",
		"server.properties:9: compression.type: Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
		"server.properties:10: log.retention.ms: requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
		"server.properties:11: advertised.listeners: requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
		"hint: say how clients reach this machine: --advertise HOST",
	}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAFileThatLeavesOutTheRolesIsFilledInWhenAskedFor(t *testing.T) {
	fill := func(file string) (*Broker, []Warning, error) {
		return Load(Sources{Fill: true, Files: []File{{"small", []byte(file)}}})
	}
	b, warnings, err := fill("log.dirs=/d\nlisteners=PLAINTEXT://127.0.0.1:19092\n")
	if err != nil {
		t.Fatal(err)
	}
	if b.NodeID != 1 || len(b.Listeners) != 1 || b.Listeners[0].Port != 19092 || b.LogDirs[0] != "/d" || b.InterBrokerListener != "PLAINTEXT" {
		t.Errorf("broker %+v", b)
	}
	want := "small: does not set what Apache Kafka requires; serving with process.roles=broker,controller, node.id=1, controller.listener.names=CONTROLLER"
	if len(warnings) != 1 || warnings[0].String() != want {
		t.Errorf("warnings %v, want %s", warnings, want)
	}
	if b, _, err = fill("node.id=7\nprocess.roles=controller, broker\n"); err != nil || b.NodeID != 7 {
		t.Errorf("with an id and roles: %v, %v", b, err)
	}
	for _, refused := range []string{
		"zookeeper.connect=z:2181\n",
		"process.roles=broker\n",
		"controller.quorum.voters=1@h:9093\n",
		"controller.quorum.bootstrap.servers=h:9093\n",
		"controller.listener.names=C\nlisteners=C://:1,PLAINTEXT://:2\n",
	} {
		if _, _, err := fill(refused); err == nil {
			t.Errorf("%q was filled in", refused)
		}
	}
	if _, warnings, err = fill(valid); err != nil || len(warnings) > 0 {
		t.Errorf("a whole file: %v, %v", warnings, err)
	}
}

func TestASmallFileHidesNoOtherError(t *testing.T) {
	_, _, err := load(t, "log.dirs=/d\nlisteners=SSL://:9093\nnum.partitions=x\n")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`"process.roles"`, `"node.id"`, `"controller.listener.names"`, "either controller.quorum.bootstrap.servers must contain",
		"listener SSL uses SSL, which is not supported yet", "num.partitions: Invalid value x", "hint: a single node has node.id=1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

func TestListenersThatCannotBeReadSayWhatIsMissing(t *testing.T) {
	for value, want := range map[string]string{
		"PLAINTEXT://127.0.0.1":           "the port is missing: NAME://HOST:PORT",
		"PLAINTEXT://[::1]":               "the port is missing: NAME://HOST:PORT",
		"PLAINTEXT://h:99999":             "the port is 0 to 65535",
		"PLAINTEXT://h:-1":                "the port is 0 to 65535",
		"h:9092":                          "a listener is NAME://HOST:PORT",
		"PLAINTEXT://a:1,PLAINTEXT://b:2": "give each a name of its own",
	} {
		_, _, err := Load(Sources{Flags: []Setting{{"listeners", value, Origin{Kind: FromFlag, Name: "--listen"}}}})
		if err == nil || !strings.Contains(err.Error(), "hint: "+want) {
			t.Errorf("%s: %v, want the hint %q", value, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"a broken escape", `a=\u12`, `server.properties:1: syntax: Malformed \uxxxx encoding.`},
		{"TLS listeners", strings.Replace(valid, "listeners=PLAINTEXT", "listener.security.protocol.map=X:SSL,CONTROLLER:PLAINTEXT\ninter.broker.listener.name=X\nlisteners=X", 1), "listener X uses SSL, which is not supported yet"},
		{"an authorizer, because it would not be asked", valid + "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "an authorizer is not supported yet"},
		{"a policy class", valid + "create.topic.policy.class.name=com.acme.P", "Class com.acme.P could not be found."},
		{"another principal builder", valid + "principal.builder.class=com.acme.P", "Class com.acme.P could not be found."},
		{"tiered storage", valid + "remote.log.storage.system.enable=true", "remote.log.storage.system.enable: not supported"},
		{"two nodes", strings.Replace(valid, "1@h:9093", "1@h:9093,2@i:9093", 1), "a quorum of 2 controllers is not supported yet"},
		{"voters without an id", strings.Replace(valid, "1@h:9093", "h:9093", 1), "Each entry should be in the form `{id}@{host}:{port}`."},
		{"no quorum", strings.Replace(valid, "controller.quorum.voters=1@h:9093\n", "", 1), "If using process.roles, either controller.quorum.bootstrap.servers"},
		{"this node not among the voters", strings.Replace(valid, "1@h:9093", "2@h:9093", 1), "the node id 1 must be included in the set of voters controller.quorum.voters=Set(2)"},
		{"a listener name twice", strings.Replace(valid, "PLAINTEXT://:9092,", "PLAINTEXT://:9092,PLAINTEXT://:9094,", 1), "Each listener must have a different name"},
		{"a port twice", strings.Replace(valid, "CONTROLLER://:9093", "CONTROLLER://:9092", 1), "Each listener must have a different port"},
		{"one address family twice on a port", strings.Replace(valid, "PLAINTEXT://:9092,CONTROLLER://:9093", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092", 1), "one needs to be IPv4 and the other IPv6"},
		{"a boolean", valid + "auto.create.topics.enable=yes", "Expected value to be either true or false"},
		{"a double", valid + "log.cleaner.min.cleanable.ratio=half", "Not a number of type DOUBLE"},
		{"a duration of varve's own", valid + "varve.shutdown.grace=soon", "is not a duration such as"},
		{"a way to sync that is none", valid + "varve.sync=sometimes", "varve.sync: Invalid value sometimes for configuration varve.sync: String must be one of: kafka, group, always"},
		{"the inter-broker listener of nobody", valid + "security.inter.broker.protocol=SSL", "inter.broker.listener.name must be a listener name defined in advertised.listeners"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := load(t, tt.file)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"an unknown key names its neighbour", valid + "log.retention.hour=1", "server.properties:7: log.retention.hour: unknown key; did you mean log.retention.hours?"},
		{"a setting of topics names the broker's", valid + "flush.messages=1", "server.properties:7: flush.messages: unknown key; did you mean log.flush.interval.messages?"},
		{"separators do not count", valid + "log_retention_ms=1", "did you mean log.retention.ms?"},
		{"an unknown key without neighbours", valid + "zookeeper.connect=h", "zookeeper.connect: unknown key"},
		{"a key set twice", valid + "num.partitions=1\nnum.partitions=2", "num.partitions: set twice, in lines 7 and 8; the last one counts"},
		{"repeated list members", valid + "advertised.listeners=PLAINTEXT://h:1,PLAINTEXT://h:1", "advertised.listeners: has duplicate values"},
		{"every key of the cleaner has its effect", valid + "num.io.threads=16\nlog.cleaner.threads=2\nlog.cleaner.io.buffer.size=1000000\nlog.cleaner.backoff.ms=5", "keys without effect: num.io.threads"},
		{"keys without effect are named together", valid + "num.io.threads=16\nnum.network.threads=9", "keys without effect: num.io.threads, num.network.threads"},
		{"no data directory", strings.Replace(valid, "log.dirs=/d\n", "", 1), "/tmp may not survive a restart"},
		{"the old name of the id", strings.Replace(valid, "node.id", "broker.id", 1), "broker.id: is deprecated; use node.id"},
		{"reporters in Java", valid + "metric.reporters=com.acme.R", "metric.reporters: has no effect: reporters are Java classes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, warnings, err := load(t, tt.file)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, w := range warnings {
				all = append(all, w.String())
			}
			if !strings.Contains(strings.Join(all, "\n"), tt.want) {
				t.Errorf("warnings %q, want one with %q", all, tt.want)
			}
		})
	}
}

func TestNoWarningWhereNothingIsWrong(t *testing.T) {
	for _, file := range []string{valid, valid + "listener.name.plaintext.x=1\nconfluent.y=1\nrest.z=1\nrsm.config.a=b\nx.jaas.config=c\njmx.port=1\nvarve.log.level=DEBUG\n"} {
		if _, warnings, err := load(t, file); err != nil || len(warnings) > 0 {
			t.Errorf("%q: %v, %v", file, warnings, err)
		}
	}
}

func TestStrictRefusesUnknownKeys(t *testing.T) {
	_, _, err := Load(Sources{Strict: true, Files: []File{{"f", []byte(valid + "log.retention.hour=1")}}})
	if err == nil || err.Error() != "f:7: log.retention.hour: unknown key\nhint: did you mean log.retention.hours?" {
		t.Errorf("error %v", err)
	}
}

func TestKafkaVariablesAreIgnoredWithOneNotice(t *testing.T) {
	b, warnings, err := Load(Sources{Env: []string{"KAFKA_HOME=/opt", "KAFKA_NUM_PARTITIONS=9"}})
	if err != nil || b.NumPartitions != 1 {
		t.Fatalf("%v, %v", b, err)
	}
	if len(warnings) != 1 || !warnings[0].Notice || !strings.HasPrefix(warnings[0].String(), "KAFKA_HOME and other") {
		t.Errorf("warnings %v", warnings)
	}
}

func TestImageEnvironment(t *testing.T) {
	b, warnings, err := Load(Sources{KafkaEnv: true, Env: []string{"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://kafka:29092,OUT://localhost:9092",
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT", "KAFKA_ZOOKEEPER_CONNECT=z:2181", "CLUSTER_ID=any text", "VARVE_LOG_LEVEL=warn"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0].String(), "zookeeper.connect: dropped") {
		t.Errorf("warnings %v", warnings)
	}
	var got []string
	for _, l := range append(b.Listeners, b.Advertised...) {
		got = append(got, l.String())
	}
	want := []string{"PLAINTEXT://0.0.0.0:29092", "OUT://0.0.0.0:9092", "PLAINTEXT://kafka:29092", "OUT://localhost:9092"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listeners: -want +got\n%s", diff)
	}
	if b.ClusterID != "any text" || b.LogLevel != "warn" {
		t.Errorf("cluster id %q, level %q", b.ClusterID, b.LogLevel)
	}
}

func TestAdvertiseTakesABareHost(t *testing.T) {
	tests := []struct{ value, want string }{
		{"kafka", "PLAINTEXT://kafka:9092"},
		{"kafka:19092", "PLAINTEXT://kafka:19092"},
		{"::1", "PLAINTEXT://[::1]:9092"},
		{"[::1]:19092", "PLAINTEXT://[::1]:19092"},
		{"PLAINTEXT://h:1", "PLAINTEXT://h:1"},
	}
	for _, tt := range tests {
		b, _, err := Load(Sources{Flags: []Setting{{"advertised.listeners", tt.value, Origin{Kind: FromFlag, Name: "--advertise"}}}})
		if err != nil || len(b.Advertised) != 1 || b.Advertised[0].String() != tt.want {
			t.Errorf("--advertise %s: %v, %v; want %s", tt.value, b, err, tt.want)
		}
	}
}

func TestFinerUnitsWin(t *testing.T) {
	b, _, err := load(t, valid+"log.retention.hours=3\nlog.retention.minutes=2\nlog.roll.hours=2\nlog.flush.scheduler.interval.ms=500\nlog.roll.jitter.hours=1\nlog.roll.jitter.ms=9\n")
	if err != nil {
		t.Fatal(err)
	}
	if b.Topic.RetentionTime != 120_000 || b.Topic.SegmentTime != 7_200_000 || b.Topic.FlushInterval != 500 || b.Topic.SegmentJitter != 9 {
		t.Errorf("topic %+v", b.Topic)
	}
}

func TestOwnUnits(t *testing.T) {
	for text, want := range map[string]time.Duration{"250ms": 250 * time.Millisecond, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "5": 5 * time.Millisecond} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]int64{"512KiB": 512 << 10, "64MB": 64_000_000, "1024": 1024, "1 GiB": 1 << 30} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "x", "-1", "5y", "d", "99999999999999999999"} {
		if d, err := ParseDuration(bad); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", bad, d)
		}
		if n, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", bad, n)
		}
	}
}

func TestMillisSaturate(t *testing.T) {
	if d := Millis(1<<63 - 1).Duration(); d != 1<<63-1 {
		t.Errorf("%v", d)
	}
	if d := Millis(1500).Duration(); d != 1500*time.Millisecond {
		t.Errorf("%v", d)
	}
}

func FuzzLoadNeverPanics(f *testing.F) {
	f.Add(valid)
	f.Add("node.id=1\nprocess.roles=,\nlisteners=A://:0,a://x:1\nadvertised.listeners=:,::\n")
	f.Add(valid + "max.connections.per.ip.overrides=:,a:b,c:1\nlog.roll.ms=0\nlog.cleaner.threads=0\n")
	f.Fuzz(func(t *testing.T, file string) {
		b, _, err := Load(Sources{Files: []File{{"f", []byte(file)}}})
		if err == nil {
			b.Describe(nil)
			b.DescribeTopic(nil, nil)
		}
	})
}

// TestVarveSyncIsTheBrokersWordForEveryTopic: whatever a topic says itself.
func TestVarveSyncIsTheBrokersWordForEveryTopic(t *testing.T) {
	for _, want := range []string{SyncKafka, SyncGroup, SyncAlways} {
		b, _, err := load(t, valid+"varve.sync="+want+"\n")
		if err != nil {
			t.Fatal(err)
		}
		topic, err := ParseTopic(map[string]string{"flush.messages": "1000"}, b)
		if err != nil || topic.Sync != want || b.Topic.Sync != want {
			t.Errorf("varve.sync=%s: topic %q, broker %q, %v", want, topic.Sync, b.Topic.Sync, err)
		}
	}
}
