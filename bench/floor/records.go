package floor

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// records builds the record section of an uncompressed version 2 batch: n records with an 8-byte key and a
// value of valueSize bytes.
func records(n, valueSize int) []byte {
	var out, body []byte
	value := make([]byte, valueSize)
	fill(value, 8)
	for i := range n {
		body = append(body[:0], 0)                   // attributes
		body = binary.AppendVarint(body, int64(i)*3) // timestamp delta
		body = binary.AppendVarint(body, int64(i))   // offset delta
		body = binary.AppendVarint(body, 8)
		body = fmt.Appendf(body, "%08d", i)
		body = binary.AppendVarint(body, int64(valueSize))
		body = append(body, value...)
		body = binary.AppendVarint(body, 0) // headers
		out = binary.AppendVarint(out, int64(len(body)))
		out = append(out, body...)
	}
	return out
}

// varint reads a zigzag varint at p and returns it with the position after it; a position past the end
// of b says that the bytes ran out.
func varint(b []byte, p int) (int64, int) {
	if p < len(b) && b[p] < 0x80 { // nearly every delta and length
		return int64(b[p]>>1) ^ -int64(b[p]&1), p + 1
	}
	return longVarint(b, p)
}

func longVarint(b []byte, p int) (int64, int) {
	var u uint64
	for s := uint(0); p < len(b) && s < 64; s += 7 {
		c := b[p]
		p++
		u |= uint64(c&0x7f) << s
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), p
		}
	}
	return 0, len(b) + 1
}

var errRecord = errors.New("malformed record")

// walk checks lengths and offset deltas of n records and returns the largest timestamp delta: the part of
// a broker's validation that touches every record.
func walk(b []byte, n int) (largest int64, err error) {
	p := 0
	for i := range n {
		length, q := varint(b, p)
		end := q + int(length)
		if length < 6 || end > len(b) {
			return 0, errRecord
		}
		r := b[:end]
		ts, q := varint(r, q+1)
		delta, q := varint(r, q)
		key, q := varint(r, q)
		value, q := varint(r, q+int(max(key, 0)))
		headers, q := varint(r, q+int(max(value, 0)))
		if delta != int64(i) || key < -1 || value < -1 || q > end || headers == 0 && q != end {
			return 0, errRecord
		}
		largest = max(largest, ts)
		p = end
	}
	if p != len(b) {
		return 0, errRecord
	}
	return largest, nil
}

// runWalk measures the walk over the records of a batch.
func runWalk(e *Env) error {
	shapes := []struct{ n, value int }{{1, 1000}, {16, 1000}, {160, 100}}
	for r := 0; e.More(r); r++ {
		for _, s := range shapes {
			b := records(s.n, s.value)
			var failed error
			loops := 200_000 / s.n
			cpu := Pinned(e.Cores[0], func() {
				for range loops {
					ts, err := walk(b, s.n)
					if err != nil {
						failed = err
					}
					sink = uint32(ts)
				}
			})
			e.Add(fmt.Sprintf("crc/walk of %d records of %d B", s.n, s.value), "CPU ns per record", cpu*1e9/float64(loops*s.n))
			if failed != nil {
				return failed
			}
		}
	}
	for _, s := range shapes {
		e.Show(fmt.Sprintf("crc/walk of %d records of %d B", s.n, s.value))
	}
	return nil
}
