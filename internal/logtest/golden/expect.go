package golden

import "encoding/json"

// Case is an expect.json.
type Case struct {
	Dir    string `json:"-"` // of the case, below testdata/golden
	Name   string `json:"case"`
	About  string
	Kafka  string // release
	Stages []Stage
	Damage json.RawMessage // 09: partition number to what was done to it
	Topics json.RawMessage // 12-produce
}

// Stage is one data directory at one moment.
type Stage struct {
	Name                string
	About               string
	Data                string // folder below the case, or with .tar.gz
	Kafka               string // release; the case's unless it differs
	Dump                []string
	DumpFlags           []string `json:"dump_flags"`
	Files               []File
	MetaProperties      map[string]string        `json:"meta_properties"`
	CleanShutdown       *CleanShutdown           `json:"clean_shutdown"`
	Checkpoints         map[string][]OffsetEntry // by file name
	BootstrapCheckpoint *struct{ Log Log }       `json:"bootstrap_checkpoint"`
	Partitions          []Partition

	caseDir string
}

// File is one file of a stage; the list is complete.
type File struct {
	Path   string
	Size   int64
	SHA256 string
}

// CleanShutdown is the content of .kafka_cleanshutdown.
type CleanShutdown struct {
	Version     int
	BrokerEpoch int64
}

// OffsetEntry is a line of an offset checkpoint.
type OffsetEntry struct {
	Topic     string
	Partition int32
	Offset    int64
}

// UnmarshalJSON reads [topic, partition, offset].
func (e *OffsetEntry) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&e.Topic, &e.Partition, &e.Offset})
}

// Partition is one partition directory.
type Partition struct {
	Dir            string
	Topic          string
	Partition      int32
	Suffix         string          // delete, future, stray
	TopicID        string          `json:"topic_id"`
	LeaderEpochs   [][2]int64      `json:"leader_epochs"` // [epoch, start]; nil without the file
	QuorumState    json.RawMessage `json:"quorum_state"`
	Segments       []Segment
	Snapshots      []Snapshot
	KRaftSnapshots []KRaftSnapshot `json:"kraft_snapshots"`
}

// KRaftSnapshot is a .checkpoint file of the metadata partition.
type KRaftSnapshot struct {
	EndOffset int64 `json:"end_offset"`
	Epoch     int32
	Suffix    string
	Log       Log
}

// Segment is the files of one base offset; absent ones are nil.
type Segment struct {
	Base      int64
	Suffix    string // .deleted, .swap, .cleaned
	Log       *Log
	Index     *Index
	TimeIndex *Index
	TxnIndex  *TxnIndex
}

// Log is the content of a .log or .checkpoint.
type Log struct {
	Size        int64
	FramedBytes int64  `json:"framed_bytes"` // end of the last whole batch
	ScanError   string `json:"scan_error"`   // "corrupt": a length below 14
	Batches     []Batch
	Decoded     []Decoded
}

// Decoded is a record as the decoder of dump-log printed it.
type Decoded struct {
	Offset int64
	Key    json.RawMessage
	Value  json.RawMessage
}

// Batch is one batch; the fields from Base to Control but Last and Count are
// absent for magic 0 and 1.
type Batch struct {
	Pos           int64
	Size          int
	Magic         int8
	Base          int64
	Last          int64
	Count         *int32
	LeaderEpoch   int32 `json:"leader_epoch"`
	Attrs         int16
	Codec         string
	TsType        string `json:"ts_type"`
	BaseTs        int64  `json:"base_ts"`
	MaxTs         int64  `json:"max_ts"`
	PID           int64
	PEpoch        int16
	Seq           int32
	Txn           bool
	Control       bool
	Horizon       *int64
	CRC           uint32
	Valid         bool
	RecordsSHA256 string   `json:"records_sha256"`
	Records       []Record // left out in large logs
	RecordsError  string   `json:"records_error"`
}

// Record is one record; a nil Key or Value is null.
type Record struct {
	Offset           int64
	Ts               int64
	Key              []byte // base64 or null in the file
	Value            []byte
	Headers          []RecordHeader
	Control          string
	CoordinatorEpoch *int32 `json:"coordinator_epoch"`
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// UnmarshalJSON reads [key, base64 or null].
func (h *RecordHeader) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&h.Key, &h.Value})
}

// Index is an .index ([absolute offset, position]) or a .timeindex
// ([timestamp, absolute offset]).
type Index struct {
	Size     int64
	ZeroTail int64 `json:"zero_tail"` // all-zero slots at the end
	Entries  [][2]int64
}

// TxnIndex is a .txnindex: [producer id, first, last, last stable offset].
type TxnIndex struct {
	Size    int64
	Entries [][4]int64
}

// Snapshot is a producer snapshot. Each of Producers is [id, epoch, last
// sequence, last offset, offset delta, timestamp, coordinator epoch, first
// offset of the open transaction or -1], in file order.
type Snapshot struct {
	Offset    int64
	Suffix    string
	Corrupt   bool
	Producers [][8]int64
}
