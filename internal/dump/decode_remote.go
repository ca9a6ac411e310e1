package dump

import (
	"fmt"
	"strings"

	"github.com/varvelog/varve/internal/record"
)

// remoteParser reads the records of __remote_log_metadata. Kafka prints them
// by the toString of its classes, not as JSON.
type remoteParser struct{ records map[int16]*schema }

// The record types of __remote_log_metadata.
const (
	remoteSegment         = 0
	remoteSegmentUpdate   = 1
	remotePartitionDelete = 2
	remoteSegmentSnapshot = 3
)

func (p remoteParser) parse(r *record.Record) (parsed, error) {
	var text string
	id, _, o, err := readFrame(p.records, r.Value, "Unknown metadata id")
	if err != nil {
		text = fmt.Sprintf("Error at offset %d, skipping. %v", r.Offset, err)
		return parsed{payload: &text}, nil
	}
	switch id {
	case remoteSegment:
		text = "RemoteLogSegmentMetadata{remoteLogSegmentId=" + segmentID(o) + ", " + segmentFields(o) + "}"
	case remoteSegmentUpdate:
		text = fmt.Sprintf("RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=%s, customMetadata=%s, state=%s, eventTimestampMs=%d, brokerId=%d}",
			segmentID(o), customMetadata(o), segmentState(o), o.get("eventTimestampMs"), o.get("brokerId"))
	case remotePartitionDelete:
		text = fmt.Sprintf("RemotePartitionDeleteMetadata{topicPartition=%s, state=%s, eventTimestampMs=%d, brokerId=%d}",
			topicIDPartition(o.get("topicIdPartition").(object)),
			stateName(o.get("remotePartitionDeleteState"), "DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"),
			o.get("eventTimestampMs"), o.get("brokerId"))
	case remoteSegmentSnapshot:
		text = fmt.Sprintf("RemoteLogSegmentMetadataSnapshot{segmentId=%v, startOffset=%d, endOffset=%d, maxTimestampMs=%d, %s}",
			o.get("segmentId"), o.get("startOffset"), o.get("endOffset"), o.get("maxTimestampMs"), segmentTail(o))
	}
	return parsed{payload: &text}, nil
}

func segmentFields(o object) string {
	return fmt.Sprintf("startOffset=%d, endOffset=%d, brokerId=%d, maxTimestampMs=%d, eventTimestampMs=%d, %s",
		o.get("startOffset"), o.get("endOffset"), o.get("brokerId"), o.get("maxTimestampMs"), o.get("eventTimestampMs"), segmentTail(o))
}

func segmentTail(o object) string {
	return fmt.Sprintf("segmentLeaderEpochs=%s, segmentSizeInBytes=%d, customMetadata=%s, state=%s, txnIdxEmpty=%t",
		leaderEpochs(o), o.get("segmentSizeInBytes"), customMetadata(o), segmentState(o), o.get("txnIndexEmpty"))
}

func segmentID(o object) string {
	id := o.get("remoteLogSegmentId").(object)
	return fmt.Sprintf("RemoteLogSegmentId{topicIdPartition=%s, id=%v}", topicIDPartition(id.get("topicIdPartition").(object)), id.get("id"))
}

func topicIDPartition(o object) string {
	return fmt.Sprintf("%v:%s-%d", o.get("id"), o.get("name"), o.get("partition"))
}

func customMetadata(o object) string {
	b, ok := o.get("customMetadata").([]byte)
	if !ok {
		return "Optional.empty"
	}
	return fmt.Sprintf("Optional[CustomMetadata{%d bytes}]", len(b))
}

func segmentState(o object) string {
	return stateName(o.get("remoteLogSegmentState"),
		"COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
}

func stateName(v any, names ...string) string {
	n, _ := v.(int64)
	if n < 0 || int(n) >= len(names) {
		return "null"
	}
	return names[n]
}

func leaderEpochs(o object) string {
	list, _ := o.get("segmentLeaderEpochs").([]any)
	var s strings.Builder
	s.WriteByte('{')
	for i, e := range list {
		if i > 0 {
			s.WriteString(", ")
		}
		e := e.(object)
		fmt.Fprintf(&s, "%d=%d", e.get("leaderEpoch"), e.get("offset"))
	}
	s.WriteByte('}')
	return s.String()
}
