package metadata

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
)

var (
	idA = kafka.UUID{0: 1, 15: 200}
	idB = kafka.UUID{0: 2, 15: 200}
)

// apply brings records into an image; all must fit.
func applied(t testing.TB, base *Image, records ...Record) (*Image, *Delta) {
	t.Helper()
	d := NewDelta(base)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Finish(base.End+kafka.Offset(len(records)), 1, 0), d
}

func partition(id kafka.TopicID, n int32) *PartitionRecord {
	return &PartitionRecord{PartitionID: n, TopicID: id, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: 5,
		Directories: []kafka.UUID{idA}}
}

func changed(id kafka.TopicID, n int32, change func(*PartitionChangeRecord)) *PartitionChangeRecord {
	r := NewPartitionChange()
	r.TopicID, r.PartitionID = id, n
	change(r)
	return r
}

func TestPartitionChanges(t *testing.T) {
	none := func(*Partition) {}
	tests := []struct {
		name   string
		change func(*PartitionChangeRecord)
		want   func(*Partition) // on top of the partition epoch
	}{
		{"nothing raises the partition epoch alone", func(*PartitionChangeRecord) {}, none},
		{"a leader raises the leader epoch", func(r *PartitionChangeRecord) { r.Leader = kafka.NoBroker }, func(p *Partition) { p.Leader, p.LeaderEpoch = -1, 4 }},
		{"so does the same leader", func(r *PartitionChangeRecord) { r.Leader = 1 }, func(p *Partition) { p.LeaderEpoch = 4 }},
		{"an empty list is not an absent one", func(r *PartitionChangeRecord) { r.ISR = []kafka.BrokerID{} }, func(p *Partition) { p.ISR = []kafka.BrokerID{} }},
		{"recovery state", func(r *PartitionChangeRecord) { r.LeaderRecoveryState = Recovering }, func(p *Partition) { p.LeaderRecoveryState = Recovering }},
		{"eligible leaders", func(r *PartitionChangeRecord) {
			r.EligibleLeaderReplicas, r.LastKnownELR = []kafka.BrokerID{1}, []kafka.BrokerID{1}
		},
			func(p *Partition) { p.ELR, p.LastKnownELR = []kafka.BrokerID{1}, []kafka.BrokerID{1} }},
		{"directories", func(r *PartitionChangeRecord) { r.Directories = []kafka.UUID{idB} }, func(p *Partition) { p.Directories = []kafka.UUID{idB} }},
		{"new replicas have no directory yet", func(r *PartitionChangeRecord) { r.Replicas = []kafka.BrokerID{2, 1} },
			func(p *Partition) {
				p.Replicas, p.Directories = []kafka.BrokerID{2, 1}, []kafka.UUID{kafka.DirUnassigned, idA}
			}},
	}
	base, _ := applied(t, NewImage(), &TopicRecord{"t", idA}, partition(idA, 0))
	before, _ := base.Topic("t").Partitions.Get(0)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next, _ := applied(t, base, changed(idA, 0, tt.change))
			want := *before
			want.PartitionEpoch = 6
			tt.want(&want)
			got := next.Partition(kafka.TopicPartition{Topic: "t"})
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("partition (-want +got):\n%s", diff)
			}
			if again, _ := base.Topic("t").Partitions.Get(0); again != before || again.PartitionEpoch != 5 {
				t.Error("the base image changed")
			}
		})
	}
}

func TestRecordsThatDoNotFitAreRefused(t *testing.T) {
	base, _ := applied(t, NewImage(), &TopicRecord{"t", idA}, partition(idA, 0), &RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: 7})
	for _, r := range []Record{
		&TopicRecord{"t", idB}, &TopicRecord{"u", idA}, &RemoveTopicRecord{idB}, partition(idB, 0), partition(idA, -1),
		changed(idB, 0, func(*PartitionChangeRecord) {}), changed(idA, 1, func(*PartitionChangeRecord) {}), &ClearElrRecord{"u"},
		&UnregisterBrokerRecord{2, 7}, &UnregisterBrokerRecord{1, 8}, &BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 6}, &FenceBrokerRecord{2, 7},
	} {
		var refused *ReplayError
		if err := NewDelta(base).Apply(r); !errors.As(err, &refused) {
			t.Errorf("Apply(%s) = %v, want a *ReplayError", AppendJSON(nil, r, maxVersion(r)), err)
		}
	}
}

func TestADeltaTellsWhatItTouched(t *testing.T) {
	base, _ := applied(t, NewImage(), &TopicRecord{"old", idA}, partition(idA, 0), partition(idA, 1),
		&ConfigRecord{ResourceTopic, "old", "retention.ms", ptr("1")}, &RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: 7, Fenced: true})
	// The name is deleted and given to a new topic in one step.
	next, d := applied(t, base, &RemoveTopicRecord{idA}, &TopicRecord{"old", idB}, partition(idB, 0), changed(idB, 0, func(r *PartitionChangeRecord) { r.Leader = 1 }),
		&FeatureLevelRecord{MetadataVersion, 33}, &UnfenceBrokerRecord{1, 7}, &ConfigRecord{ResourceBroker, "", "a", ptr("b")})
	if topic := next.Topic("old"); topic.ID != idB || topic.Partitions.Len() != 1 || next.TopicByID(idA) != nil || next.Topics.Len() != 1 {
		t.Errorf("topic %+v", topic)
	}
	if len(next.Config(ConfigResource{ResourceTopic, "old"})) != 0 {
		t.Error("the new topic has the configs of the old one")
	}
	var got []string
	for _, topic := range d.Topics() {
		for _, p := range topic.Partitions() {
			got = append(got, fmt.Sprint(topic.Old != nil, " ", topic.New != nil, " ", p.Partition, " ", p.Old != nil, " ", p.New != nil))
		}
	}
	want := []string{"true false 0 true false", "true false 1 true false", "false true 0 false true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes:\n%s", diff)
	}
	if !slices.Equal(d.Brokers(), []kafka.BrokerID{1}) || !d.FeaturesChanged() || next.Broker(1).Fenced || !base.Broker(1).Fenced {
		t.Errorf("brokers %v, features %v", d.Brokers(), d.FeaturesChanged())
	}
	if want := []ConfigResource{{ResourceTopic, "old"}, {ResourceBroker, ""}}; !slices.Equal(d.Configs(), want) {
		t.Errorf("configs %v, want %v", d.Configs(), want)
	}
	// A topic that came and went leaves no trace.
	same, d := applied(t, base, &TopicRecord{"new", idB}, partition(idB, 0), &RemoveTopicRecord{idB})
	if len(d.Topics()) != 0 || same.Topics.Len() != 1 {
		t.Errorf("%d topics touched", len(d.Topics()))
	}
}

func TestClearElrLeavesTheEpochs(t *testing.T) {
	withElr := partition(idA, 0)
	withElr.EligibleLeaderReplicas, withElr.LastKnownELR = []kafka.BrokerID{1}, []kafka.BrokerID{1}
	base, _ := applied(t, NewImage(), &TopicRecord{"t", idA}, withElr, &TopicRecord{"u", idB}, partition(idB, 0))
	for _, name := range []string{"t", ""} {
		next, d := applied(t, base, &ClearElrRecord{name})
		p := next.Partition(kafka.TopicPartition{Topic: "t"})
		if len(p.ELR)+len(p.LastKnownELR) != 0 || p.PartitionEpoch != 5 || p.LeaderEpoch != 3 || len(d.Topics()) != 1 {
			t.Errorf("ClearElr(%q): %+v, %d topics touched", name, p, len(d.Topics()))
		}
	}
}

func TestQuotasConfigsAndIDs(t *testing.T) {
	bob := []QuotaEntity{{"user", ptr("bob")}}
	anyone := []QuotaEntity{{"user", nil}}
	image, _ := applied(t, NewImage(), &ClientQuotaRecord{bob, "a", 1, false}, &ClientQuotaRecord{bob, "b", 2, false}, &ClientQuotaRecord{anyone, "a", 3, false},
		&ProducerIDsRecord{1, 7, 1000}, &FeatureLevelRecord{GroupVersion, 1})
	if q, _ := image.Quotas.Get(QuotaKey(bob)); image.Quotas.Len() != 2 || q.Values.Len() != 2 || image.NextProducerID != 1000 || image.Feature(GroupVersion) != 1 {
		t.Errorf("%d quotas, producer id %d", image.Quotas.Len(), image.NextProducerID)
	}
	image, _ = applied(t, image, &ClientQuotaRecord{bob, "a", 0, true}, &ClientQuotaRecord{bob, "b", 0, true}, &FeatureLevelRecord{GroupVersion, 0})
	if _, ok := image.Quotas.Get(QuotaKey(bob)); ok || image.Quotas.Len() != 1 || image.Features.Len() != 0 {
		t.Error("removed quotas or features are still there")
	}
}

// TestSnapshotsGiveTheSameImage: for an image of everything, replaying its
// snapshot gives it again.
func TestSnapshotsGiveTheSameImage(t *testing.T) {
	records := []Record{&FeatureLevelRecord{MetadataVersion, LatestMetadataVersion}}
	for _, r := range full() {
		switch r := r.(type) {
		case *RegisterBrokerRecord, *RegisterControllerRecord, *ConfigRecord, *DelegationTokenRecord, *UserScramCredentialRecord, *ProducerIDsRecord, *AccessControlEntryRecord, *TopicRecord:
			records = append(records, r)
		case *PartitionRecord:
			records = append(records, r)
		}
	}
	records = append(records, &ClientQuotaRecord{[]QuotaEntity{{"user", ptr("bob")}}, "a", 1, false})
	image, _ := applied(t, NewImage(), records...)
	var again []Record
	for r := range image.SnapshotRecords() {
		b := AppendRecord(nil, r, RecordVersion(r, LatestMetadataVersion))
		decoded, _, err := DecodeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, decoded)
	}
	twice, _ := applied(t, NewImage(), again...)
	if diff := cmp.Diff(snapshotLines(image), snapshotLines(twice)); diff != "" || len(again) != len(records) {
		t.Errorf("%d records of %d:\n%s", len(again), len(records), diff)
	}
}

func BenchmarkOneChangeAmongTenThousandPartitions(b *testing.B) {
	image := NewImage()
	d := NewDelta(image)
	for i := range 100 {
		id := kafka.UUID{0: byte(i), 15: 200}
		if err := d.Apply(&TopicRecord{fmt.Sprint("topic", i), id}); err != nil {
			b.Fatal(err)
		}
		for n := range int32(100) {
			if err := d.Apply(partition(id, n)); err != nil {
				b.Fatal(err)
			}
		}
	}
	image = d.Finish(0, 0, 0)
	r := changed(kafka.UUID{0: 50, 15: 200}, 50, func(r *PartitionChangeRecord) { r.Leader = 1 })
	b.ReportAllocs()
	for b.Loop() {
		d := NewDelta(image)
		if err := d.Apply(r); err != nil {
			b.Fatal(err)
		}
		image = d.Finish(0, 0, 0)
	}
}
