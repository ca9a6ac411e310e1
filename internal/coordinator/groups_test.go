package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
)

func TestPartitionForIsJavasHash(t *testing.T) {
	tests := []struct {
		group string
		want  int32
	}{
		{"my-group", 12}, {"test", 48}, {"group-1", 49}, {"tx-1", 20}, {"グループ", 20}, {"polygenelubricants", 0}, {"", 0},
		{"classic-x", 19}, {"simple-x", 21}, {"static-x", 47}, // as Apache Kafka placed them
	}
	for _, tt := range tests {
		if got := PartitionFor(tt.group, 50); got != tt.want {
			t.Errorf("PartitionFor(%q, 50) = %d, want %d", tt.group, got, tt.want)
		}
	}
}

// options are those of a coordinator with one partition.
func options() Options {
	return Options{
		Partitions: 1,
		Logger:     slog.New(slog.DiscardHandler),
		ErrorCode: func(err error) kafka.ErrorCode {
			if errors.Is(err, errDisk) {
				return kafka.ErrKafkaStorageError
			}
			return kafka.ErrUnknownServerError
		},
	}
}

// start runs f in a bubble with a coordinator of one partition.
func start(t *testing.T, o Options, f func(t *testing.T, g *Groups, l *memLog)) {
	synctest.Test(t, func(t *testing.T) {
		g, l := NewGroups(o), &memLog{}
		defer g.Close()
		g.Load(0, l)
		synctest.Wait()
		f(t, g, l)
	})
}

func (g *Groups) mustJoin(t *testing.T, client, member string) *kmsg.JoinGroupResponse {
	t.Helper()
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID = 3, "g", member
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = 10000, 30000, "consumer"
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}}}
	a, err := g.JoinGroup(t.Context(), Client{client, "/127.0.0.1"}, r)
	if err != nil {
		t.Errorf("JoinGroup: %v", err)
	}
	return a
}

func (g *Groups) mustSync(t *testing.T, j *kmsg.JoinGroupResponse) *kmsg.SyncGroupResponse {
	t.Helper()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", j.MemberID, j.Generation
	for _, m := range j.Members {
		r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: []byte(m.MemberID)})
	}
	a, err := g.SyncGroup(t.Context(), Client{}, r)
	if err != nil {
		t.Errorf("SyncGroup: %v", err)
	}
	return a
}

func (g *Groups) mustBeat(t *testing.T, j *kmsg.JoinGroupResponse) kafka.ErrorCode {
	t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = "g", j.MemberID, j.Generation
	a, err := g.Heartbeat(t.Context(), Client{}, r)
	if err != nil {
		t.Errorf("Heartbeat: %v", err)
	}
	return kafka.ErrorCode(a.ErrorCode)
}

func (g *Groups) mustCommit(t *testing.T, id string, partition int32, offset int64) kafka.ErrorCode {
	t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = 9, id, -1
	cell := kmsg.NewOffsetCommitRequestTopicPartition()
	cell.Partition, cell.Offset = partition, offset
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{cell}}}
	a, err := g.OffsetCommit(t.Context(), Client{}, r)
	if err != nil {
		t.Errorf("OffsetCommit: %v", err)
	}
	return kafka.ErrorCode(a.Topics[0].Partitions[0].ErrorCode)
}

// mustFetch returns the offsets of t-0 and t-1.
func (g *Groups) mustFetch(t *testing.T, id string) ([2]int64, kafka.ErrorCode) {
	t.Helper()
	r := kmsg.NewOffsetFetchRequestGroup()
	r.Group = id
	r.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	a, err := g.OffsetFetch(t.Context(), Client{}, &r, false)
	if err != nil {
		t.Errorf("OffsetFetch: %v", err)
	}
	if a.ErrorCode != 0 {
		return [2]int64{}, kafka.ErrorCode(a.ErrorCode)
	}
	return [2]int64{a.Topics[0].Partitions[0].Offset, a.Topics[0].Partitions[1].Offset}, kafka.None
}

// rebalanced has three members join and sync.
func rebalanced(t *testing.T, g *Groups) []*kmsg.JoinGroupResponse {
	t.Helper()
	joins := make([]*kmsg.JoinGroupResponse, 3)
	var wg sync.WaitGroup
	for i := range joins {
		wg.Go(func() {
			joins[i] = g.mustJoin(t, fmt.Sprintf("c%d", i), "")
			if a := g.mustSync(t, joins[i]); a.ErrorCode != 0 || string(a.MemberAssignment) != joins[i].MemberID {
				t.Errorf("SyncGroup = %d %q, want the assignment of %s", a.ErrorCode, a.MemberAssignment, joins[i].MemberID)
			}
		})
	}
	wg.Wait()
	return joins
}

func TestThreeMembersShareAGroupAndItSurvivesARestart(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		joins := rebalanced(t, g)
		for _, j := range joins {
			if j.ErrorCode != 0 || j.Generation != 1 || j.LeaderID != joins[0].LeaderID {
				t.Fatalf("JoinGroup = %+v, want generation 1 with one leader", j)
			}
			if code := g.mustBeat(t, j); code != kafka.None {
				t.Errorf("Heartbeat = %v, want NONE", code)
			}
		}
		if code := g.mustCommit(t, "simple", 0, 7); code != kafka.None {
			t.Errorf("OffsetCommit = %v, want NONE", code)
		}

		g.Load(0, l)
		synctest.Wait()
		rows := g.DescribeGroups([]string{"g", "simple", "nobody"}, 6)
		if len(rows) != 3 || rows[0].State != "Stable" || len(rows[0].Members) != 3 || rows[1].State != "Empty" || rows[2].ErrorCode != int16(kafka.ErrGroupIDNotFound) {
			t.Errorf("DescribeGroups after a restart = %+v", rows)
		}
		if got, code := g.mustFetch(t, "simple"); got != [2]int64{7, -1} || code != kafka.None {
			t.Errorf("OffsetFetch after a restart = %v, %v, want 7 and -1", got, code)
		}
		for _, j := range joins {
			if code := g.mustBeat(t, j); code != kafka.None {
				t.Errorf("Heartbeat after a restart = %v, want NONE", code)
			}
		}
	})
}

func TestBatchesAreAsKafkasCoordinatorWritesThem(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 3, 1)
		b := l.all()[0]
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		if b.ProducerID() != -1 || b.ProducerEpoch() != -1 || b.BaseSequence() != 0 || b.Attributes() != 0 || b.BaseTimestamp() != b.MaxTimestamp() {
			t.Errorf("batch has producer %d, epoch %d, sequence %d, attributes %#x", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Attributes())
		}
		if l.written(t)[0].Timestamp != kafka.TimestampOf(time.Now()) {
			t.Errorf("record at %d, want now", l.written(t)[0].Timestamp)
		}
	})
}

func TestSilentMembersAreDropped(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, _ *memLog) {
		joins := rebalanced(t, g)
		time.Sleep(9 * time.Second)
		g.mustBeat(t, joins[0])
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if code := g.mustBeat(t, joins[1]); code != kafka.ErrUnknownMemberID {
			t.Errorf("Heartbeat of the silent member = %v, want UNKNOWN_MEMBER_ID", code)
		}
		if code := g.mustBeat(t, joins[0]); code != kafka.ErrRebalanceInProgress {
			t.Errorf("Heartbeat of the other = %v, want REBALANCE_IN_PROGRESS", code)
		}
		if j := g.mustJoin(t, "c0", joins[0].MemberID); j.Generation != 2 || len(j.Members) != 1 {
			t.Errorf("JoinGroup = %+v, want generation 2 of one", j)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if rows := g.DescribeGroups([]string{"g"}, 5); rows[0].State != "Empty" {
			t.Errorf("state five minutes later is %s, want Empty", rows[0].State)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if rows := g.DescribeGroups([]string{"g"}, 5); rows[0].State != "Dead" {
			t.Errorf("state after a look for expired offsets is %s, want Dead: it has none", rows[0].State)
		}
	})
}

func TestRequestsWhileAPartitionLoadsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := NewGroups(options()), &memLog{}
		defer g.Close()
		g.Load(0, l)
		g.mustCommit(t, "g", 0, 5)
		l.reading = make(chan struct{})
		g.Load(0, l)

		if j := g.mustJoin(t, "c", ""); j.ErrorCode != int16(kafka.ErrCoordinatorLoadInProgress) {
			t.Errorf("JoinGroup while loading = %d, want 14", j.ErrorCode)
		}
		if code := g.mustBeat(t, &kmsg.JoinGroupResponse{MemberID: "m"}); code != kafka.None {
			t.Errorf("Heartbeat while loading = %v, want NONE", code)
		}
		if _, code := g.mustFetch(t, "g"); code != kafka.ErrCoordinatorLoadInProgress {
			t.Errorf("OffsetFetch while loading = %v, want 14", code)
		}
		if _, code := g.ListGroups(nil, nil); code != kafka.ErrCoordinatorLoadInProgress {
			t.Errorf("ListGroups while loading = %v, want 14", code)
		}
		close(l.reading)
		synctest.Wait()
		if got, code := g.mustFetch(t, "g"); got[0] != 5 || code != kafka.None {
			t.Errorf("OffsetFetch = %v, %v, want 5", got, code)
		}
		g.Unload(0)
		if _, code := g.mustFetch(t, "g"); code != kafka.ErrNotCoordinator {
			t.Errorf("OffsetFetch of another's group = %v, want 16", code)
		}
		if rows, code := g.ListGroups(nil, nil); code != kafka.None || rows == nil || len(rows) != 0 {
			t.Errorf("ListGroups without partitions = %v, %v, want an empty list", rows, code)
		}
	})
}

func TestAnswersWaitUntilTheirRecordsAreCommitted(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 1)
		l.hold(true)
		answered := make(chan kafka.ErrorCode, 1)
		go func() { answered <- g.mustCommit(t, "g", 0, 2) }()
		synctest.Wait()
		fetched := make(chan int64, 1)
		go func() {
			got, _ := g.mustFetch(t, "g")
			fetched <- got[0]
		}()
		synctest.Wait()
		if len(answered) != 0 || len(fetched) != 0 {
			t.Fatal("answered before the record was committed")
		}
		l.commit()
		synctest.Wait()
		if code := <-answered; code != kafka.None {
			t.Errorf("OffsetCommit = %v, want NONE", code)
		}
		if got := <-fetched; got != 2 {
			t.Errorf("OffsetFetch = %d, want 2", got)
		}

		// Not committed in time: the client is told to try again, and the offset
		// counts all the same once it is committed.
		began := time.Now()
		if code := g.mustCommit(t, "g", 0, 3); code != kafka.ErrCoordinatorNotAvailable {
			t.Errorf("OffsetCommit without quorum = %v, want 15", code)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("OffsetCommit gave up after %v, want offsets.commit.timeout.ms", d)
		}
		if _, code := g.mustFetch(t, "g"); code != kafka.ErrNotCoordinator {
			t.Errorf("OffsetFetch without quorum = %v, want 16", code)
		}
		l.hold(false)
		l.commit()
		if got, code := g.mustFetch(t, "g"); got[0] != 3 || code != kafka.None {
			t.Errorf("OffsetFetch = %v, %v, want 3", got, code)
		}
	})
}

func TestFailedAppendsChangeNothing(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 1)
		l.failWith(errDisk)
		if code := g.mustCommit(t, "g", 0, 2); code != kafka.ErrNotCoordinator {
			t.Errorf("OffsetCommit = %v, want 16", code)
		}
		if code := g.mustCommit(t, "new", 0, 2); code != kafka.ErrNotCoordinator {
			t.Errorf("OffsetCommit = %v, want 16", code)
		}
		l.failWith(nil)
		if got, _ := g.mustFetch(t, "g"); got[0] != 1 {
			t.Errorf("OffsetFetch = %d, want 1", got[0])
		}
		if rows, _ := g.ListGroups(nil, nil); len(rows) != 1 {
			t.Errorf("ListGroups = %v, want g alone", rows)
		}
	})
}

// TestWhoWaitsForTheDiskIsToldOfItsFailure: at once, not when
// offsets.commit.timeout.ms is over.
func TestWhoWaitsForTheDiskIsToldOfItsFailure(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 1)
		l.hold(true)
		answered := make(chan kafka.ErrorCode, 1)
		began := time.Now()
		go func() { answered <- g.mustCommit(t, "g", 0, 2) }()
		synctest.Wait()
		l.failWith(errDisk)
		l.watch()
		if code := <-answered; code != kafka.ErrNotCoordinator {
			t.Errorf("OffsetCommit = %v, want 16", code)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("told after %v, want at once", d)
		}
		l.failWith(nil)
		l.hold(false)
		l.commit()
	})
}

func TestWhoWaitsIsToldWhenThePartitionIsUnloaded(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		codes := make(chan int16, 2)
		go func() { codes <- g.mustJoin(t, "c", "").ErrorCode }()
		synctest.Wait()
		l.hold(true)
		go func() { codes <- int16(g.mustCommit(t, "s", 0, 1)) }()
		synctest.Wait()
		g.Unload(0)
		for range 2 {
			if code := kafka.ErrorCode(<-codes); code != kafka.ErrNotCoordinator {
				t.Errorf("answer = %v, want NOT_COORDINATOR", code)
			}
		}
	})
}

func TestAClientThatGoesAwayIsNotWaitedFor(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, _ *memLog) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			r := kmsg.NewPtrJoinGroupRequest()
			r.Group, r.SessionTimeoutMillis, r.ProtocolType = "g", 10000, "consumer"
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
			_, err := g.JoinGroup(ctx, Client{}, r)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("JoinGroup = %v, want context.Canceled", err)
		}
		if rows := g.DescribeGroups([]string{"g"}, 5); len(rows[0].Members) != 1 {
			t.Errorf("members = %v, want the one that went away, until its session ends", rows[0].Members)
		}
	})
}

func TestLargeOperations(t *testing.T) {
	o := options()
	o.MaxBatch = 200
	o.CheckInterval = time.Hour
	start(t, o, func(t *testing.T, g *Groups, l *memLog) {
		for p := range int32(10) {
			g.mustCommit(t, "g", p, 1)
		}
		rows, err := g.DeleteGroups(t.Context(), Client{}, []string{"g"})
		if err != nil || rows[0].ErrorCode != int16(kafka.ErrUnknownServerError) {
			t.Errorf("DeleteGroups of more than a batch holds = %+v, %v, want -1", rows, err)
		}
		before := len(l.all())
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		if list, _ := g.ListGroups(nil, nil); len(list) != 0 {
			t.Errorf("groups after eight days: %v, want none", list)
		}
		if n := len(l.all()) - before; n < 2 {
			t.Errorf("expiry took %d batches, want several", n)
		}
		for _, b := range l.all() {
			if len(b) > o.MaxBatch {
				t.Errorf("batch of %d bytes, want at most %d", len(b), o.MaxBatch)
			}
		}
	})
}

func TestDeletedTopicsTakeTheirOffsetsAlong(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, _ *memLog) {
		g.mustCommit(t, "g", 0, 1)
		g.TopicsDeleted([]group.DeletedTopic{{Name: "t"}})
		if got, _ := g.mustFetch(t, "g"); got[0] != -1 {
			t.Errorf("OffsetFetch = %d, want -1", got[0])
		}
	})
}

// TestLoadOfKafkasPartitions loads __consumer_offsets as Apache Kafka 4.4.0 wrote it.
func TestLoadOfKafkasPartitions(t *testing.T) {
	s := golden.Load(t, "07-groups-4.4.0").Stage(t, "clean")
	dir := s.Unpack(t)
	for _, codec := range []record.Codec{record.None, record.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			o := options()
			o.Partitions, o.LoadBuffer, o.Codec = 50, 300, codec
			g := NewGroups(o)
			defer g.Close()
			logs := map[int32]*memLog{}
			for _, p := range s.Partitions {
				if p.Topic == kafka.ConsumerOffsetsTopic {
					logs[p.Partition] = fileLog(t, filepath.Join(dir, p.Dir, "00000000000000000000.log"))
					g.Load(p.Partition, logs[p.Partition])
				}
			}
			g.loads.Wait()
			rows, code := g.ListGroups(nil, nil)
			if code != kafka.None {
				t.Fatalf("ListGroups = %v", code)
			}
			var got []string
			for _, r := range rows {
				got = append(got, r.Group+" "+r.GroupType+" "+r.GroupState)
			}
			slices.Sort(got)
			want := "altered-x classic Empty, classic-x classic Stable, next-x consumer Stable, regex-x consumer Empty, " +
				"share-x share Empty, simple-x classic Empty, static-x classic Empty, txgroup-x classic Empty"
			if s := strings.Join(got, ", "); s != want {
				t.Errorf("groups: %s\nwant:   %s", s, want)
			}
			// What the coordinator writes behind Kafka's records is read back.
			if code := g.mustCommit(t, "simple-x", 0, 99); code != kafka.None {
				t.Errorf("OffsetCommit = %v, want NONE", code)
			}
			p := g.PartitionFor("simple-x")
			g.Load(p, logs[p])
			g.loads.Wait()
			r := kmsg.NewOffsetFetchRequestGroup()
			r.Group = "simple-x"
			a, err := g.OffsetFetch(t.Context(), Client{}, &r, true)
			if err != nil || len(a.Topics) != 2 || a.Topics[1].Partitions[0].Offset != 99 {
				t.Errorf("OffsetFetch = %+v, %v, want topics in and t, t-0 at 99", a, err)
			}
		})
	}
}

func fileLog(t *testing.T, path string) *memLog {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &memLog{}
	for len(b) > 0 {
		size, ok, err := record.NextBatch(b)
		if err != nil || !ok {
			t.Fatalf("%s: NextBatch = %v, %v", path, ok, err)
		}
		l.add(record.Batch(b[:size]))
		b = b[size:]
	}
	l.high = l.end
	return l
}

func TestADamagedPartitionIsNotServedInPart(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 1)
		g.mustCommit(t, "g", 1, 1)
		l.all()[0][70] ^= 1
		g.Load(0, l)
		synctest.Wait()
		if _, code := g.mustFetch(t, "g"); code != kafka.ErrNotCoordinator {
			t.Errorf("OffsetFetch = %v, want NOT_COORDINATOR", code)
		}
	})
}

func TestAThousandMembersThatJoinAtOnceAreOneGeneration(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		leaders, members := map[string]int{}, 0
		for i := range 1000 {
			wg.Go(func() {
				j := g.mustJoin(t, fmt.Sprintf("c%d", i), "")
				a := g.mustSync(t, j)
				mu.Lock()
				defer mu.Unlock()
				leaders[fmt.Sprint(j.Generation, j.LeaderID)]++
				members += len(j.Members)
				if a.ErrorCode != 0 || string(a.MemberAssignment) != j.MemberID {
					t.Errorf("SyncGroup of %s = %d %q", j.MemberID, a.ErrorCode, a.MemberAssignment)
				}
			})
		}
		wg.Wait()
		if len(leaders) != 1 || members != 1000 {
			t.Errorf("generations and leaders %v, and %d members told to them, want one of each and 1000", leaders, members)
		}
		g.Load(0, l)
		synctest.Wait()
		if rows := g.DescribeGroups([]string{"g"}, 5); rows[0].State != "Stable" || len(rows[0].Members) != 1000 {
			t.Errorf("after a restart the group is %s with %d members, want Stable with 1000", rows[0].State, len(rows[0].Members))
		}
	})
}

// TestManyClientsAtOnce is for the race detector: members come, go and are
// killed by time while partitions are loaded again.
func TestManyClientsAtOnce(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				member := ""
				for range 30 {
					j := g.mustJoin(t, fmt.Sprintf("c%d", i), member)
					if j.ErrorCode != 0 {
						member = ""
						time.Sleep(100 * time.Millisecond)
						continue
					}
					member = j.MemberID
					g.mustSync(t, j)
					g.mustBeat(t, j)
					g.mustCommit(t, fmt.Sprintf("s%d", i), 0, 1)
					time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for range 5 {
				time.Sleep(20 * time.Second)
				g.Load(0, l)
			}
		})
		wg.Wait()
	})
}
