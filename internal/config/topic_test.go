package config

import (
	"errors"
	"testing"
)

func TestTopicRefusalsSpeakKafkas(t *testing.T) {
	tests := []struct{ name, key, value, want string }{
		{"an unknown name", "x", "1", "Unknown topic config name: x"},
		{"a key that Kafka removed", "message.format.version", "3.0", "Unknown topic config name: message.format.version"},
		{"a number that is none", "retention.ms", "week", "Invalid value week for configuration retention.ms: Not a number of type LONG"},
		{"a small segment", "segment.bytes", "1000", "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"},
		{"an unknown policy", "cleanup.policy", "purge", "Invalid value purge for configuration cleanup.policy: String must be one of: compact, delete"},
		{"gzip level 0", "compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{"a ratio over one", "min.cleanable.dirty.ratio", "1.5", "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{"throttled replicas", "leader.replication.throttled.replicas", "a:b", "Invalid value [a:b] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{"tiered storage", "remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseTopic(map[string]string{tt.key: tt.value}, nil)
			var refused *TopicError
			if !errors.As(err, &refused) || err.Error() != tt.want {
				t.Errorf("ParseTopic(%s=%s): %v, want %s", tt.key, tt.value, err, tt.want)
			}
		})
	}
	_, err := ParseTopic(map[string]string{"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, nil)
	if want := "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"; err == nil || err.Error() != want {
		t.Errorf("lags: %v, want %s", err, want)
	}
}

func TestTopicTakesItsDefaultsFromTheBroker(t *testing.T) {
	b, _, err := load(t, valid+"log.segment.bytes=2000000\nlog.cleanup.policy=\nmessage.max.bytes=77\ncompression.type=lz4\nlog.message.timestamp.type=LogAppendTime\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseTopic(map[string]string{"cleanup.policy": "compact, delete,compact", "internal.segment.bytes": "500"}, b)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Compact || !got.Delete || got.SegmentBytes != 500 || got.MaxMessageBytes != 77 || got.CompressionType != "lz4" || got.TimestampType != LogAppendTime {
		t.Errorf("topic %+v", got)
	}
	if b.Topic.Compact || b.Topic.Delete || b.Topic.SegmentBytes != 2000000 {
		t.Errorf("defaults %+v", b.Topic)
	}
}

func TestTopicPrecedence(t *testing.T) {
	base, _, err := load(t, valid+"log.retention.bytes=1\n")
	if err != nil {
		t.Fatal(err)
	}
	cluster, _ := base.WithDynamic(map[string]string{"log.retention.bytes": "2"}, nil)
	own, _ := base.WithDynamic(map[string]string{"log.retention.bytes": "2"}, map[string]string{"log.retention.bytes": "3"})
	for _, tt := range []struct {
		name string
		b    *Broker
		set  map[string]string
		want int64
	}{
		{"without a broker Kafka's default", nil, nil, -1},
		{"the file", base, nil, 1},
		{"the cluster over the file", cluster, nil, 2},
		{"the broker over the cluster", own, nil, 3},
		{"the topic over everything", own, map[string]string{"retention.bytes": "4"}, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTopic(tt.set, tt.b)
			if err != nil || got.RetentionBytes != tt.want {
				t.Errorf("%d, %v; want %d", got.RetentionBytes, err, tt.want)
			}
		})
	}
}

func TestDynamicValuesThatCannotHoldAreLeftOut(t *testing.T) {
	b, ignored := defaults(t).WithDynamic(
		map[string]string{"log.dirs": "/x", "listeners": "A://:1", "log.retention.ms": "x", "num.io.threads": "9", "unknown": "u"},
		map[string]string{"log.cleaner.threads": "2"})
	if len(ignored) != 3 || ignored[0] != "listeners" || ignored[1] != "log.dirs" || ignored[2] != "log.retention.ms" {
		t.Errorf("ignored %v", ignored)
	}
	e := b.Describe([]string{"num.io.threads", "log.cleaner.threads", "unknown", "nope"})
	if len(e) != 3 || e[0].Source != SourceDynamicBroker || e[1].Source != SourceDynamicDefault || !e[2].Sensitive {
		t.Errorf("entries %+v", e)
	}
	if d := b.DescribeDefaults(nil); len(d) != 2 || d[0].Name != "num.io.threads" || len(d[0].Synonyms) != 1 {
		t.Errorf("defaults %+v", d)
	}
}

func TestBrokerIsDescribedWith350Keys(t *testing.T) {
	b, _, err := load(t, valid+"ssl.key.password=secret\nlog.cleaner.enable=TRUE\n")
	if err != nil {
		t.Fatal(err)
	}
	all := b.Describe(nil)
	if len(all) != 350 {
		t.Errorf("%d keys, want 350", len(all))
	}
	for _, e := range all {
		switch e.Name {
		case "ssl.key.password":
			if !e.Null || e.Value != "" || !e.Sensitive || e.Source != SourceStatic || !e.Synonyms[0].Null {
				t.Errorf("%+v shows a secret", e)
			}
		case "node.id", "broker.id":
			if e.Value != "1" || e.Source != SourceStatic || !e.ReadOnly || e.Type != TypeInt {
				t.Errorf("%+v", e)
			}
		case "log.dir":
			if e.Value != "/tmp/kafka-logs" || e.Source != SourceDefault {
				t.Errorf("%+v", e)
			}
		case "log.cleaner.enable":
			if e.Value != "true" || e.Source != SourceStatic {
				t.Errorf("%+v", e)
			}
		case "log.retention.ms":
			if !e.Null || len(e.Synonyms) != 0 || e.ReadOnly {
				t.Errorf("%+v", e)
			}
		case "principal.builder.class":
			if e.Value != "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder" {
				t.Errorf("%+v", e)
			}
		}
	}
}

func TestChangesAtRunTime(t *testing.T) {
	tests := []struct {
		name      string
		set       map[string]string
		perBroker bool
		want      string
	}{
		{"a read-only key", map[string]string{"log.dirs": "/x"}, true, "Cannot update these configs dynamically: [log.dirs]"},
		{"a per-broker key for all", map[string]string{"listeners": "A://:1"}, false, "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"},
		{"no cleaner threads", map[string]string{"log.cleaner.threads": "0"}, true, "Invalid value 0 for configuration log.cleaner.threads: Value must be at least 1"},
		{"a bad value", map[string]string{"log.retention.bytes": "x"}, false, "Invalid value x for configuration log.retention.bytes: Not a number of type LONG"},
		{"an unknown key passes", map[string]string{"anything": "x"}, false, ""},
		{"a throttle passes", map[string]string{"leader.replication.throttled.rate": "5"}, true, ""},
		{"a good value passes", map[string]string{"log.retention.bytes": "5"}, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckBrokerChange(tt.set, tt.perBroker)
			if got := text(err); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	b := defaults(t)
	if got := text(b.CheckGroupKey("consumer.session.timeout.ms", "1")); got != "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms" {
		t.Error(got)
	}
	if got := text(b.CheckGroupKey("nope", "1")); got != "Unknown group config name: nope" {
		t.Error(got)
	}
	if got := text(b.CheckGroupKey("share.auto.offset.reset", "by_duration:PT1H")); got != "" {
		t.Error(got)
	}
	if got := text(CheckClientMetricsKey("interval.ms", "99")); got == "" {
		t.Error("99 ms accepted")
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDoublesLookLikeJavas(t *testing.T) {
	k := Key{Name: "x", Type: TypeDouble}
	for in, want := range map[string]string{"0.5": "0.5", "1": "1.0", "1e7": "1.0E7", "0.0001": "1.0E-4", "1.7976931348623157E308": "1.7976931348623157E308", "9999999": "9999999.0", "0": "0.0", "2.147483647E9": "2.147483647E9"} {
		if got, err := k.Check(in); err != nil || got != want {
			t.Errorf("Check(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
}
