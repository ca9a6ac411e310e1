package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestFirstLifeWritesKafkasRecords: a formatted directory, started and stopped,
// holds the records that 4.4.0 and 3.9.2 wrote in theirs, batch for batch.
func TestFirstLifeWritesKafkasRecords(t *testing.T) {
	c := newCluster(t, "")
	c.stop()
	kafkas := memfs.New()
	golden.Load(t, "01-fresh-4.4.0").Stage(t, "stopped").UnpackTo(t, kafkas, "/data")
	got := batches(logRecords(t, c.disk, 0))
	want := batches(logRecords(t, kafkas, 0))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Kafka's records (-) and these (+):\n%s", diff)
	}
}

// What Kafka 4.4.0 writes in each step of metadata.md 6.3.
const (
	registerController = "REGISTER_CONTROLLER v0"
	registerBroker     = "REGISTER_BROKER v4 fenced true dirs 1 cordoned false"
	cordoned           = `{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":3,"data":{"brokerId":1,"brokerEpoch":0,"cordonedLogDirs":[]}}`
	unfenced           = `{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":0,"fenced":-1}}`
	fenced             = `{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":0,"fenced":1}}`
	shuttingDown       = `{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":1,"data":{"brokerId":1,"brokerEpoch":0,"inControlledShutdown":1}}`
)

func change(version int, fields string) string {
	return fmt.Sprintf(`{"type":"PARTITION_CHANGE_RECORD","version":%d,"data":{"partitionId":0,"topicId":"AAAAAAAAAAAAAAAAAAAAAA",%s}}`, version, fields)
}

var (
	resigned   = change(2, `"isr":[],"leader":-1,"eligibleLeaderReplicas":[1],"lastKnownElr":[1]`)
	elected    = change(2, `"isr":[1],"leader":1,"eligibleLeaderReplicas":[],"lastKnownElr":[]`)
	ineligible = change(2, `"eligibleLeaderReplicas":[]`)
	recovering = change(2, `"isr":[1],"leader":1,"leaderRecoveryState":1,"lastKnownElr":[]`)
	stillSo    = change(2, `"isr":[1],"leader":1,"lastKnownElr":[]`)
)

// takeover starts on a golden stage as a node does and returns the batches that
// were written.
func takeover(t *testing.T, name, stage string, clean bool) (*cluster, []string) {
	t.Helper()
	s := golden.Load(t, name).Stage(t, stage)
	c := &cluster{t: t, disk: memfs.New(), dirs: 1, ids: 200}
	s.UnpackTo(t, c.disk, "/data")
	previous := Unclean
	if clean {
		previous = s.CleanShutdown.BrokerEpoch
	}
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	before := c.Image()
	end := before.End - 1 // the LeaderChange of this start
	if err := c.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	epoch, err := c.Register(previous)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Unfence(); err != nil {
		t.Fatal(err)
	}
	checkEpochs(t, before, c.Image(), epoch)
	return c, collapse(batches(logRecords(t, c.disk, end)))
}

// checkEpochs: epochs only rise (metadata.md 12.6), and this node leads everything.
func checkEpochs(t *testing.T, before, after *metadata.Image, brokerEpoch int64) {
	t.Helper()
	if b := before.Broker(1); b != nil && brokerEpoch <= b.Epoch {
		t.Errorf("broker epoch %d after %d", brokerEpoch, b.Epoch)
	}
	if after.Broker(1).Epoch != brokerEpoch || !after.Broker(1).Active() {
		t.Errorf("registration %+v, want epoch %d and active", after.Broker(1), brokerEpoch)
	}
	for name, topic := range after.Topics.All() {
		old := before.Topic(name)
		if old == nil || old.ID != topic.ID {
			t.Errorf("topic %s has id %s, was %+v", name, topic.ID, old)
			continue
		}
		for n, p := range topic.Partitions.All() {
			was, _ := old.Partitions.Get(n)
			if p.Leader != 1 || p.LeaderEpoch <= was.LeaderEpoch || p.PartitionEpoch <= was.PartitionEpoch || len(p.ISR) != 1 {
				t.Errorf("%s-%d is %+v, was %+v", name, n, p, was)
			}
		}
	}
	if after.Topics.Len() != before.Topics.Len() {
		t.Errorf("%d topics, were %d", after.Topics.Len(), before.Topics.Len())
	}
}

func TestTakeoverWritesKafkasRecords(t *testing.T) {
	old := "REGISTER_BROKER v3 fenced true dirs 1 cordoned false"
	oldResigned, oldElected := change(1, `"leader":-1`), change(1, `"leader":1`)
	tests := []struct {
		name, stage string
		clean       bool
		want        []string
	}{
		{"01-fresh-4.4.0", "stopped", true, []string{"LEADER_CHANGE", registerController, registerBroker, cordoned, unfenced}},
		{"01-fresh-4.4.0", "killed", false, []string{"LEADER_CHANGE", registerController, fenced, registerBroker, cordoned, unfenced}},
		{"01-fresh-3.9.2", "stopped", true, []string{"LEADER_CHANGE", registerController, old, unfenced}},
		{"01-fresh-3.9.2", "killed", false, []string{"LEADER_CHANGE", registerController, fenced, old, unfenced}},
		{"02-segments-4.4.0", "clean", true, []string{"LEADER_CHANGE", registerController, registerBroker, cordoned, unfenced + "\n" + elected + " ×6"}},
		{"02-segments-4.4.0", "killed", false, []string{"LEADER_CHANGE", registerController, resigned + " ×6\n" + fenced,
			ineligible + " ×6\n" + registerBroker, cordoned, unfenced + "\n" + stillSo + " ×6"}},
		{"02-segments-4.4.0", "reopened-killed", false, []string{"LEADER_CHANGE", registerController, resigned + " ×6\n" + fenced,
			ineligible + " ×6\n" + registerBroker, cordoned, unfenced + "\n" + recovering + " ×6"}},
		{"02-segments-4.4.0", "clean", false, []string{"LEADER_CHANGE", registerController,
			ineligible + " ×6\n" + registerBroker, cordoned, unfenced + "\n" + recovering + " ×6"}},
		{"02-segments-3.9.2", "clean", true, []string{"LEADER_CHANGE", registerController, old, unfenced + "\n" + oldElected + " ×6"}},
		{"02-segments-3.9.2", "killed", false, []string{"LEADER_CHANGE", registerController, oldResigned + " ×6\n" + fenced, old, unfenced + "\n" + oldElected + " ×6"}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.name, "/", tt.stage, "/clean=", tt.clean), func(t *testing.T) {
			c, got := takeover(t, tt.name, tt.stage, tt.clean)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Kafka's records (-) and these (+):\n%s", diff)
			}
			end := c.Image().End
			c.stop()
			stopped := []string{shuttingDown + "\n" + resigned + " ×6", fenced}
			switch {
			case tt.name == "02-segments-3.9.2":
				stopped[0] = shuttingDown + "\n" + oldResigned + " ×6"
			case c.Image().Topics.Len() == 0:
				stopped = stopped[1:] // who leads nothing is fenced at once
			}
			if diff := cmp.Diff(stopped, collapse(batches(logRecords(t, c.disk, end)))); diff != "" {
				t.Errorf("stop: Kafka's records (-) and these (+):\n%s", diff)
			}
		})
	}
}

// TestFormattedDirectoriesAreStartedAtTheirLevel: never started before, formatted
// by 4.4.0 (a snapshot) and by 3.9.2 (bootstrap.checkpoint).
func TestFormattedDirectoriesAreStartedAtTheirLevel(t *testing.T) {
	level := func(name string, n int) string {
		return fmt.Sprintf(`{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":%q,"featureLevel":%d}}`, name, n)
	}
	begin := `{"type":"BEGIN_TRANSACTION_RECORD","version":0,"data":{"name":"Bootstrap records"}}`
	end := `{"type":"END_TRANSACTION_RECORD","version":0,"data":{}}`
	minISR := `{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":4,"resourceName":"","name":"min.insync.replicas","value":"1"}}`
	tests := map[string][]string{
		"01-fresh-4.4.0": {begin, level(metadata.MetadataVersion, 33), level(metadata.ELRVersion, 1), level(metadata.GroupVersion, 1),
			level(metadata.ShareVersion, 2), level(metadata.StreamsVersion, 1), level(metadata.TransactionVersion, 2), minISR, end},
		"01-fresh-3.9.2": {begin, level(metadata.MetadataVersion, 21), end},
	}
	for name, want := range tests {
		c := &cluster{t: t, disk: memfs.New(), dirs: 1}
		golden.Load(t, name).Stage(t, "formatted").UnpackTo(t, c.disk, "/data")
		c.start(Unclean)
		got := batches(logRecords(t, c.disk, 0))[1]
		if diff := cmp.Diff(strings.Join(want, "\n"), got); diff != "" {
			t.Errorf("%s: bootstrap (-want +got):\n%s", name, diff)
		}
		c.stop()
		c.start(c.epoch)
	}
}

func TestACleanStopAndStartCostTwoLeaderEpochs(t *testing.T) {
	c := newCluster(t, "")
	c.create(topic("t", 2))
	tp := kafka.TopicPartition{Topic: "t", Partition: 1}
	for _, want := range []kafka.LeaderEpoch{0, 2, 4} {
		p := c.Image().Partition(tp)
		if p.LeaderEpoch != want || p.PartitionEpoch != int32(want) || p.Leader != 1 || p.LeaderRecoveryState != metadata.Recovered {
			t.Errorf("partition %+v, want leader epoch %d", p, want)
		}
		c.stop()
		c.start(c.epoch)
	}
	// Another start without its marker: recovering, and it stays so.
	c.stop()
	c.start(Unclean)
	c.stop()
	c.start(c.epoch)
	if p := c.Image().Partition(tp); p.LeaderEpoch != 10 || p.LeaderRecoveryState != metadata.Recovering {
		t.Errorf("after an unclean and a clean start %+v, want epoch 10, recovering", p)
	}
}

func TestRegistrationOfSeveralDirectories(t *testing.T) {
	c := &cluster{t: t, disk: memfs.New(), dirs: 2, ids: 126} // ids 127 and 128: the second is negative in Java
	c.format(nil)
	c.start(Unclean)
	dirs := c.Image().Broker(1).LogDirs
	if len(dirs) != 2 || dirs[0][0] != 128 || dirs[1][0] != 127 {
		t.Errorf("LogDirs %v, want them in the order of signed halves", dirs)
	}
	id := c.create(topic("t", 2))[0].ID
	if p := c.Image().Partition(kafka.TopicPartition{Topic: "t"}); p.Directory(1) != kafka.DirUnassigned {
		t.Errorf("directory %s, want unassigned", p.Directory(1))
	}
	end := c.Image().End
	places := []Placement{{id, 0, dirs[1]}, {id, 1, dirs[0]}, {id, 7, dirs[0]}, {kafka.UUID{9}, 0, dirs[0]}}
	for range 2 { // the second time nothing is new
		if err := c.PlaceReplicas(places); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(logRecords(t, c.disk, end)); got != 2 {
		t.Errorf("%d records, want 2", got)
	}
	p := c.Image().Partition(kafka.TopicPartition{Topic: "t", Partition: 1})
	if p.Directory(1) != dirs[0] || p.LeaderEpoch != 0 || p.PartitionEpoch != 1 {
		t.Errorf("partition %+v", p)
	}
}

func TestNewPartitionsOfSeveralDirectoriesArePlaced(t *testing.T) {
	c := &cluster{t: t, disk: memfs.New(), dirs: 2}
	c.format(nil)
	c.start(Unclean)
	dirs := c.Image().Broker(1).LogDirs
	c.cfg.DirectoryOf = func(tp kafka.TopicPartition) (kafka.UUID, bool) { return dirs[tp.Partition%2], tp.Partition < 3 }
	end := c.Image().End
	c.create(topic("t", 2))
	if _, err := c.CreatePartitions([]MorePartitions{{Topic: "t", Count: 4}}, false); err != nil {
		t.Fatal(err)
	}
	for n, want := range []kafka.UUID{dirs[0], dirs[1], dirs[0], kafka.DirUnassigned} {
		if got := c.Image().Partition(kafka.TopicPartition{Topic: "t", Partition: int32(n)}).Directory(1); got != want {
			t.Errorf("partition %d is recorded in %s, want %s", n, got, want)
		}
	}
	if got := len(batches(logRecords(t, c.disk, end))); got != 4 {
		t.Errorf("%d batches, want creation and placement twice", got)
	}
}

func TestProducerIDBlocksAreNeverGivenTwice(t *testing.T) {
	c := newCluster(t, "")
	var got []kafka.ProducerID
	for range 2 {
		for range 2 {
			first, err := c.AllocateProducerIDs()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, first)
		}
		c.stop()
		c.start(c.epoch)
	}
	if fmt.Sprint(got) != "[0 1000 2000 3000]" {
		t.Errorf("blocks begin at %v", got)
	}
	last := logRecords(t, c.disk, 0)
	want := `{"type":"PRODUCER_IDS_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":%d,"nextProducerId":1000}}`
	found := false
	for _, e := range last {
		found = found || e.text == fmt.Sprintf(want, 11)
	}
	if !found {
		t.Errorf("no first block in %v", last)
	}
}

func TestManyPartitionsAreElectedInSeveralBatches(t *testing.T) {
	c := newCluster(t, "")
	for i := range 3 {
		c.create(topic(fmt.Sprint("t", i), 5000))
	}
	c.stop()
	c.start(c.epoch)
	for _, topic := range c.Image().Topics.All() {
		for n, p := range topic.Partitions.All() {
			if p.Leader != 1 || p.LeaderEpoch != 2 {
				t.Fatalf("%s-%d is %+v", topic.Name, n, p)
			}
		}
	}
}

func TestOldFeatureLevelsStay(t *testing.T) {
	c := &cluster{t: t, disk: memfs.New(), dirs: 1}
	c.format([]metadata.FeatureLevelRecord{{Name: metadata.MetadataVersion, Level: metadata.V3_9_IV0}})
	c.start(Unclean)
	c.create(topic("t", 1, "min.insync.replicas", "1"))
	c.stop()
	c.start(c.epoch)
	for _, e := range logRecords(t, c.disk, 0) {
		if strings.Contains(e.text, "CLEAR_ELR") || strings.Contains(e.text, `RECORD","version":2`) {
			t.Errorf("record %s without the feature", e.text)
		}
	}
	if level := c.Image().Feature(metadata.MetadataVersion); level != metadata.V3_9_IV0 {
		t.Errorf("metadata.version %d", level)
	}
	if _, err := checkpoint.ReadQuorumState(c.disk, "/data/"+quorum.DirName+"/quorum-state"); err != nil {
		t.Error(err)
	}
}
