package dump

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// bootstrapSnapshot is the snapshot that formatting wrote before 4.0.
const bootstrapSnapshot = "bootstrap.checkpoint"

// segmentBase is the offset that a file is named for.
func segmentBase(name string) (int64, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	base, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, &javaError{"java.lang.NumberFormatException", fmt.Sprintf("For input string: %q", digits)}
	}
	return base, nil
}

// log prints a .log or a snapshot of the metadata log.
func (t *Tool) log(name string) error {
	if err := t.logTitle(name); err != nil {
		return err
	}
	f, size, err := t.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	size = min(size, int64(t.opts.maxBytes))
	d := logDump{tool: t, path: t.absolute(name), lastOffset: -1}
	s := record.NewScanner(f, 0, size, record.ScanBuffer)
	for s.Next() {
		b, err := s.Batch()
		if err != nil {
			return scanError(name, err)
		}
		d.printBatch(s.Header(), s.Position(), record.Check(b) == nil)
		if t.opts.deep {
			if err := d.printRecords(s.Header(), b); err != nil {
				return err
			}
		}
	}
	if s.Err() != nil {
		return scanError(name, s.Err())
	}
	if rest := size - s.ValidEnd(); rest > 0 && t.opts.maxBytes == math.MaxInt32 {
		fmt.Fprintf(t.out, "Found %d invalid bytes at the end of %s\n", rest, filepath.Base(name))
	}
	return nil
}

func (t *Tool) logTitle(name string) error {
	base := filepath.Base(name)
	switch {
	case strings.HasSuffix(base, ".log"):
		offset, err := segmentBase(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.out, "Log starting offset: %d\n", offset)
	case base == bootstrapSnapshot:
		fmt.Fprintln(t.out, "KRaft bootstrap snapshot")
	default:
		offset, epoch, ok := parseSnapshotName(base)
		if !ok {
			return &javaError{"java.util.NoSuchElementException", "No value present"}
		}
		fmt.Fprintf(t.out, "Snapshot end offset: %d, epoch: %d\n", offset, epoch)
	}
	return nil
}

// parseSnapshotName reads <end offset, 20 digits>-<epoch, 10 digits>.checkpoint.
func parseSnapshotName(base string) (offset int64, epoch int32, ok bool) {
	if len(base) < 31 || base[20] != '-' {
		return 0, 0, false
	}
	offset, err1 := strconv.ParseInt(base[:20], 10, 64)
	e, err2 := strconv.ParseInt(base[21:31], 10, 32)
	return offset, int32(e), err1 == nil && err2 == nil
}

func (t *Tool) open(name string) (vfs.File, int64, error) {
	f, err := t.FS.OpenFile(t.absolute(name), 0, 0)
	if err != nil {
		return nil, 0, javaIOError(name, err)
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, 0, javaIOError(name, err)
	}
	return f, size, nil
}

// scanError is what Kafka's file iterator throws.
func scanError(name string, err error) error {
	var corrupt *record.CorruptError
	if !errors.As(err, &corrupt) {
		return javaIOError(name, err)
	}
	const class = "org.apache.kafka.common.errors.CorruptRecordException"
	if corrupt.Reason == "declared length" {
		return &javaError{class, fmt.Sprintf("Found record size %d smaller than minimum record overhead (14) in file %s.", corrupt.Found, name)}
	}
	return &javaError{class, fmt.Sprintf("%v in file %s.", corrupt, name)}
}

// logDump is the state of one log's dump.
type logDump struct {
	tool       *Tool
	path       string
	lastOffset int64
	it         record.Iterator
	dec        record.Decompressor
}

func (d *logDump) printBatch(h *record.Header, position int64, valid bool) {
	out := d.tool.out
	if h.Magic >= record.MagicV2 {
		horizon := "OptionalLong.empty"
		if h.HasDeleteHorizon() {
			horizon = fmt.Sprintf("OptionalLong[%d]", h.BaseTimestamp)
		}
		fmt.Fprintf(out, "baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
			h.BaseOffset, h.LastOffset, h.Count, h.BaseSequence, h.LastSequence(), h.ProducerID, h.ProducerEpoch,
			h.LeaderEpoch, h.IsTransactional(), h.IsControl(), horizon)
	} else {
		fmt.Fprintf(out, "offset: %d", h.LastOffset)
	}
	fmt.Fprintf(out, " position: %d %v: %d size: %d magic: %d compresscodec: %v crc: %d isvalid: %t\n",
		position, h.TimestampType(), h.MaxTimestamp, h.Size, h.Magic, h.Codec(), h.CRC, valid)
}

func (d *logDump) printRecords(h *record.Header, b []byte) error {
	if err := d.it.Reset(b, &d.dec); err != nil {
		return recordError(err)
	}
	out := d.tool.out
	for d.it.Next() {
		r := d.it.Record()
		if int64(r.Offset) != d.lastOffset+1 {
			d.tool.gaps.add(d.path, pair{d.lastOffset, int64(r.Offset)})
		}
		d.lastOffset = int64(r.Offset)
		prefix := "| "
		if !d.tool.opts.skipMetadata {
			if err := d.printMetadata(h, r); err != nil {
				return err
			}
			prefix = " "
		}
		if d.tool.opts.printData && !h.IsControl() {
			p, err := d.tool.opts.parser.parse(r)
			if err != nil {
				return err
			}
			if p.key != nil {
				out.WriteString(prefix + "key: " + *p.key)
				prefix = " "
			}
			if p.payload != nil {
				out.WriteString(prefix + "payload: " + *p.payload)
			}
		}
		out.WriteByte('\n')
	}
	return recordError(d.it.Err())
}

func (d *logDump) printMetadata(h *record.Header, r *record.Record) error {
	out := d.tool.out
	fmt.Fprintf(out, "| offset: %d %v: %d keySize: %d valueSize: %d", r.Offset, h.TimestampType(), r.Timestamp, sizeOf(r.Key), sizeOf(r.Value))
	if h.Magic >= record.MagicV2 {
		keys := make([]string, len(r.Headers))
		for i := range r.Headers {
			keys[i] = javaString(r.Headers[i].Key)
		}
		fmt.Fprintf(out, " sequence: %d headerKeys: [%s]", r.Sequence, strings.Join(keys, ","))
	} else {
		fmt.Fprintf(out, " isValid: %t crc: %d", r.Valid, r.CRC)
	}
	if h.IsControl() {
		return d.printControl(r)
	}
	return nil
}

func sizeOf(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// recordError is the exception of a record that cannot be read.
func recordError(err error) error {
	var invalid *record.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return &javaError{"org.apache.kafka.common.InvalidRecordException", invalid.Reason}
	case errors.Is(err, record.ErrUnknownCodec):
		return &javaError{"java.lang.IllegalArgumentException", err.Error()}
	}
	return &javaError{"org.apache.kafka.common.KafkaException", err.Error()}
}
