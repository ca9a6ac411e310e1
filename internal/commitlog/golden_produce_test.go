package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// produced is one recorded Produce request for one partition and its answer.
type produced struct {
	Topic         string
	Partition     int32
	Records       []byte
	What          string
	Error         int16
	BaseOffset    int64 `json:"base_offset"`
	LogAppendTime int64 `json:"log_append_time"`
	LogStart      int64 `json:"log_start"`
}

// code is the protocol error for an error of the log; the broker has its own
// table, this one is what the recording needs.
func code(err error) kafka.ErrorCode {
	switch {
	case err == nil:
		return kafka.None
	case errors.Is(err, ErrCorrupt):
		return kafka.ErrCorruptMessage
	case errors.Is(err, ErrInvalidTimestamp):
		return kafka.ErrInvalidTimestamp
	case errors.Is(err, ErrInvalidRecord):
		return kafka.ErrInvalidRecord
	case errors.Is(err, ErrOutOfOrderSequence):
		return kafka.ErrOutOfOrderSequenceNumber
	case errors.Is(err, ErrInvalidProducerEpoch):
		return kafka.ErrInvalidProducerEpoch
	case errors.Is(err, ErrMessageTooLarge):
		return kafka.ErrMessageTooLarge
	}
	return kafka.ErrUnknownServerError
}

// atTheLog reports whether the request reached the log: what the broker refuses
// before it is answered without a log start offset, a bad checksum excepted.
func (r *produced) atTheLog() bool {
	return r.LogStart >= 0 || r.Error == int16(kafka.ErrCorruptMessage)
}

// TestGoldenProduce sends the recorded batches and wants the recorded answers
// and, afterwards, the files of the broker that was killed; then those of the
// same broker after a recovery and a clean stop.
func TestGoldenProduce(t *testing.T) {
	c := golden.Load(t, "12-produce-4.4.0")
	var requests []produced
	golden.JSON(t, filepath.Join(c.Dir, "requests.json"), &requests)
	var topics []struct {
		Topic   string
		Configs map[string]any
	}
	d := json.NewDecoder(bytes.NewReader(c.Topics))
	d.UseNumber()
	if err := d.Decode(&topics); err != nil {
		t.Fatal(err)
	}
	disk := memfs.New()
	killed, recovered := c.Stage(t, "killed"), c.Stage(t, "recovered")
	killed.UnpackTo(t, disk, "/killed")
	recovered.UnpackTo(t, disk, "/recovered")
	// The record timestamps are from 2025, the topics keep records for a week;
	// no retention ran during the recording.
	now := time.UnixMilli(1750000000000)
	equal := 0
	for i := range killed.Partitions {
		p := &killed.Partitions[i]
		if strings.HasPrefix(p.Topic, "__") {
			continue
		}
		t.Run(p.Dir, func(t *testing.T) {
			id, err := kafka.ParseUUID(p.TopicID)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{
				Dir: "/d/" + p.Dir, Partition: kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition}, TopicID: id,
				Config: DefaultConfig(), Now: func() time.Time { return now },
			}
			for _, topic := range topics {
				if topic.Topic == p.Topic {
					o.Config = configOf(t, topic.Configs)
				}
			}
			own := memfs.New()
			o.FS = own
			if err := own.MkdirAll(o.Dir, 0o755); err != nil {
				t.Fatal(err)
			}
			l, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.AssignEpoch(0, 0); err != nil {
				t.Fatal(err)
			}
			for i, r := range requests {
				if r.Topic != p.Topic || r.Partition != p.Partition || !r.atTheLog() {
					continue
				}
				checkProduced(t, l, i, &r)
			}
			equal += diffFiles(t, "killed", listFiles(t, disk, "/killed/"+p.Dir), listFiles(t, own, o.Dir))

			after := own.Crash(memfs.KeepAll())
			o.FS = after
			if l, err = Open(o); err != nil {
				t.Fatal(err)
			}
			epoch := recovered.Partition(t, p.Dir).LeaderEpochs
			if err := l.AssignEpoch(kafka.LeaderEpoch(epoch[len(epoch)-1][0]), l.EndOffset()); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			equal += diffFiles(t, "recovered", listFiles(t, disk, "/recovered/"+p.Dir), listFiles(t, after, o.Dir))
		})
	}
	if equal < 100 {
		t.Errorf("%d files compared equal, want at least 100", equal)
	}
}

func checkProduced(t *testing.T, l *Log, i int, r *produced) {
	t.Helper()
	name := strconv.Itoa(i) + " " + r.What
	info, err := l.AppendAsLeader(bytes.Clone(r.Records), 0, AppendOptions{})
	if got := code(err); got != kafka.ErrorCode(r.Error) {
		t.Errorf("request %s: error %v (%v), want %v", name, got, err, kafka.ErrorCode(r.Error))
		return
	}
	l.MaybeIncrementHighWatermark(l.EndOffset())
	if int64(info.FirstOffset) != r.BaseOffset || int64(info.LogAppendTime) != r.LogAppendTime {
		t.Errorf("request %s: base offset %d and append time %d, want %d and %d", name, info.FirstOffset, info.LogAppendTime, r.BaseOffset, r.LogAppendTime)
	}
	var refused *AppendError
	if !errors.As(err, &refused) || refused.RecordErrors == nil {
		return
	}
	want := map[string]AppendError{
		"null key on compacted": {
			Message:      "One or more records have been rejected due to 1 record errors in total, and only showing the first three errors at most: [RecordError(batchIndex=0, message='Compacted topic cannot accept message without key in topic partition compactkey-0')]",
			RecordErrors: []RecordError{{0, "Compacted topic cannot accept message without key in topic partition compactkey-0"}},
		},
		"far future": {
			Message:      "One or more records have been rejected due to invalid timestamp",
			RecordErrors: []RecordError{{0, "Timestamp 5250000000000 of message with offset 0 is out of range. The timestamp should be within [-9223370286854775807, 1750003600000]"}},
		},
	}[r.What]
	if refused.Message != want.Message {
		t.Errorf("request %s: message %q, want %q", name, refused.Message, want.Message)
	}
	if diff := cmp.Diff(want.RecordErrors, refused.RecordErrors); diff != "" {
		t.Errorf("request %s (-want +got):\n%s", name, diff)
	}
}
