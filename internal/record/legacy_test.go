package record

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

// message makes one message of format 0 or 1.
func message(magic byte, offset, ts int64, attrs byte, key, value []byte) []byte {
	body := []byte{magic, attrs}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(ts))
	}
	body = append(append(body, lengthPrefixed(key)...), lengthPrefixed(value)...)
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	b = append(b, 0, 0, 0, 0)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[legacyCRC:], legacyChecksum(b))
	return b
}

func wrap(t *testing.T, magic byte, offset, ts int64, codec Codec, logAppendTime bool, inner ...[]byte) []byte {
	t.Helper()
	var set []byte
	for _, m := range inner {
		set = append(set, m...)
	}
	var c Compressor
	packed, err := c.Compress(nil, codec, 0, set)
	if err != nil {
		t.Fatal(err)
	}
	attrs := byte(codec)
	if logAppendTime {
		attrs |= AttrLogAppendTime
	}
	return message(magic, offset, ts, attrs, nil, packed)
}

func TestOldMessages(t *testing.T) {
	k, v := []byte("k"), []byte("v")
	type rec struct {
		Offset kafka.Offset
		Ts     kafka.Timestamp
		Type   kafka.TimestampType
	}
	tests := []struct {
		name string
		b    []byte
		want []rec
	}{
		{"format 0 has no timestamp", message(0, 5, 0, 0, k, v), []rec{{5, -1, kafka.NoTimestampType}}},
		{"format 1 has one", message(1, 5, 77, 0, k, v), []rec{{5, 77, kafka.CreateTime}}},
		{"format 1 stamped by the broker", message(1, 5, 77, AttrLogAppendTime, k, v), []rec{{5, 77, kafka.LogAppendTime}}},
		{"offsets in a format 0 wrapper are absolute",
			wrap(t, 0, 11, 0, Gzip, false, message(0, 10, 0, 0, k, v), message(0, 11, 0, 0, k, v)),
			[]rec{{10, -1, kafka.NoTimestampType}, {11, -1, kafka.NoTimestampType}}},
		{"offsets in a format 1 wrapper are relative",
			wrap(t, 1, 11, 9, Snappy, false, message(1, 0, 8, 0, k, v), message(1, 1, 9, 0, k, v)),
			[]rec{{10, 8, kafka.CreateTime}, {11, 9, kafka.CreateTime}}},
		{"relative offsets may have gaps",
			wrap(t, 1, 15, 9, LZ4, false, message(1, 2, 8, 0, k, v), message(1, 5, 9, 0, k, v)),
			[]rec{{12, 8, kafka.CreateTime}, {15, 9, kafka.CreateTime}}},
		{"a wrapper at offset 0 with inner offsets is old librdkafka's",
			wrap(t, 1, 0, 9, Gzip, false, message(1, 0, 8, 0, k, v), message(1, 1, 9, 0, k, v)),
			[]rec{{0, 8, kafka.CreateTime}, {1, 9, kafka.CreateTime}}},
		{"the broker's time on a wrapper holds for all inside",
			wrap(t, 1, 1, 99, Gzip, true, message(1, 0, 8, 0, k, v), message(1, 1, 9, 0, k, v)),
			[]rec{{0, 99, kafka.LogAppendTime}, {1, 99, kafka.LogAppendTime}}},
		{"a partial message at the end of a wrapper is dropped",
			wrap(t, 0, 3, 0, Gzip, false, message(0, 3, 0, 0, k, v), message(0, 4, 0, 0, k, v)[:20]),
			[]rec{{3, -1, kafka.NoTimestampType}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := Check(tt.b); err != nil {
				t.Fatal(err)
			}
			records, err := collect(t, tt.b, new(Decompressor))
			if err != nil || len(records) != len(tt.want) {
				t.Fatalf("%d records, %v; want %d", len(records), err, len(tt.want))
			}
			for i, r := range records {
				if got := (rec{r.Offset, r.Timestamp, r.TimestampType}); got != tt.want[i] {
					t.Errorf("record %d = %+v, want %+v", i, got, tt.want[i])
				}
				if string(r.Key) != "k" || string(r.Value) != "v" || !r.Valid || r.Sequence != -1 {
					t.Errorf("record %d = %+v", i, r)
				}
			}
		})
	}
}

func TestMalformedOldMessages(t *testing.T) {
	k, v := []byte("k"), []byte("v")
	cut := func(b []byte, at int, with byte) []byte {
		b[at] = with
		return b
	}
	tests := []struct {
		name string
		b    []byte
		want error
	}{
		{"a wrapper without a value", message(1, 5, 0, byte(Gzip), k, nil), ErrInvalid},
		{"a wrapper with nothing in it", wrap(t, 1, 5, 0, Gzip, false), ErrInvalid},
		{"zstd is not for old formats", message(1, 5, 0, byte(Zstd), k, v), ErrUnknownCodec},
		{"codec 6 does not exist", message(1, 5, 0, 6, k, v), ErrUnknownCodec},
		{"a wrapper inside a wrapper", wrap(t, 1, 5, 0, Gzip, false, wrap(t, 1, 0, 0, Gzip, false, message(1, 0, 0, 0, k, v))), ErrInvalid},
		{"a wrapper's offset below its last inner one", wrap(t, 1, 1, 0, Gzip, false, message(1, 2, 0, 0, k, v)), ErrInvalid},
		{"an inner length below 14", wrap(t, 1, 1, 0, Gzip, false, cut(message(1, 0, 0, 0, k, v), 11, 13)), ErrCorrupt},
		{"a key that passes the end", cut(message(0, 1, 0, 0, k, v), 20, 1), ErrCorrupt},
		{"a value that passes the end", cut(message(0, 1, 0, 0, nil, v), 24, 1), ErrCorrupt},
	}
	for _, tt := range tests {
		if _, err := collect(t, tt.b, new(Decompressor)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	b := message(0, 1, 0, 0, k, v)
	b[len(b)-1]++
	if err := Check(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Check of a flipped message = %v", err)
	}
}
