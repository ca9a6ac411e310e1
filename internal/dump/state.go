package dump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// txnIndex prints a transaction index: entries of 34 bytes, version 0,
// producer id, first, last and last stable offset.
func (t *Tool) txnIndex(name string) error {
	const entry = 34
	if _, err := segmentBase(name); err != nil {
		return err
	}
	data, err := vfs.ReadFile(t.FS, t.absolute(name))
	if err != nil {
		return javaIOError(name, err)
	}
	for ; len(data) >= entry; data = data[entry:] {
		be := binary.BigEndian
		if version := int16(be.Uint16(data)); version > 0 {
			return &javaError{"org.apache.kafka.common.KafkaException", fmt.Sprintf(
				"Unexpected aborted transaction version %d in transaction index %s, current version is 0", version, t.absolute(name))}
		}
		fmt.Fprintf(t.out, "version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n",
			int64(be.Uint64(data[2:])), int64(be.Uint64(data[10:])), int64(be.Uint64(data[18:])), int64(be.Uint64(data[26:])))
	}
	return nil
}

// snapshot prints a producer snapshot. A corrupt one is a line on standard
// error and no failure.
func (t *Tool) snapshot(name string) error {
	data, err := vfs.ReadFile(t.FS, t.absolute(name))
	if err != nil {
		return javaIOError(name, err)
	}
	entries, err := snapshotEntries(data)
	if err != nil {
		fmt.Fprintln(t.Stderr, err)
		return nil
	}
	for _, e := range entries {
		t.printProducer(e)
	}
	return nil
}

// Sizes of a producer snapshot: version, checksum, count; and one entry.
const (
	snapshotHeader = 2 + 4 + 4
	snapshotCRCEnd = 2 + 4
	snapshotEntry  = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

// snapshotEntries checks a snapshot and cuts it into entries.
func snapshotEntries(data []byte) ([][]byte, error) {
	be := binary.BigEndian
	if len(data) < 2 {
		return nil, errors.New("Snapshot failed schema validation: null")
	}
	if version := int16(be.Uint16(data)); version != 1 {
		return nil, fmt.Errorf("Snapshot failed schema validation: Snapshot contained an unknown file version %d", version)
	}
	if len(data) < snapshotHeader {
		return nil, errors.New("Snapshot failed schema validation: null")
	}
	n := int64(int32(be.Uint32(data[snapshotCRCEnd:])))
	rest := data[snapshotHeader:]
	switch {
	case n < 0:
		return nil, errors.New("Snapshot failed schema validation: non-nullable field producerEntries was serialized as null")
	case n > int64(len(rest)):
		return nil, fmt.Errorf("Snapshot failed schema validation: Tried to allocate a collection of size %d, but there are only %d bytes remaining.", n, len(rest))
	case n*snapshotEntry > int64(len(rest)):
		return nil, errors.New("Snapshot failed schema validation: null")
	}
	stored := be.Uint32(data[2:])
	computed := crc32.Checksum(data[snapshotCRCEnd:], crc32.MakeTable(crc32.Castagnoli))
	if stored != computed {
		return nil, fmt.Errorf("Snapshot is corrupt (CRC is no longer valid). Stored crc: %d. Computed crc: %d", stored, computed)
	}
	entries := make([][]byte, n)
	for i := range entries {
		entries[i] = rest[i*snapshotEntry : (i+1)*snapshotEntry]
	}
	return entries, nil
}

func (t *Tool) printProducer(e []byte) {
	be := binary.BigEndian
	lastSequence := kafka.Sequence(be.Uint32(e[10:]))
	lastOffset := int64(be.Uint64(e[14:]))
	delta := int32(be.Uint32(e[22:]))
	timestamp := int64(be.Uint64(e[26:]))
	txnFirst := int64(be.Uint64(e[38:]))
	first := "OptionalLong.empty"
	if txnFirst >= 0 {
		first = fmt.Sprintf("OptionalLong[%d]", txnFirst)
	}
	fmt.Fprintf(t.out, "producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
		int64(be.Uint64(e)), int16(be.Uint16(e[8:])), int32(be.Uint32(e[34:])), first, timestamp)
	if lastOffset >= 0 {
		fmt.Fprintf(t.out, " firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
			decrement(lastSequence, delta), lastSequence, lastOffset, delta, timestamp)
	}
	t.out.WriteByte('\n')
}

// decrement is DefaultRecordBatch.decrementSequence.
func decrement(s kafka.Sequence, n int32) int32 {
	if int32(s) < n {
		return 1<<31 - 1 - (n - int32(s)) + 1
	}
	return int32(s) - n
}
