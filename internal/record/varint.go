package record

// Varints are base-128, least significant group first, over zig-zag: at most
// 5 bytes for 32 bits and 10 for 64 (ByteUtils.readVarint, readVarlong). Most
// in a batch take one byte, so that case stays in the callers' inlined path.

// varint reads a 32-bit varint at b[i]. next is 0 when it does not end within
// the buffer or within 5 bytes.
func varint(b []byte, i int) (v int32, next int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return int32(b[i]>>1) ^ -int32(b[i]&1), i + 1
	}
	return varintSlow(b, i)
}

func varintSlow(b []byte, i int) (int32, int) {
	var u uint32
	for shift := uint(0); shift < 35; shift += 7 {
		if uint(i) >= uint(len(b)) {
			return 0, 0
		}
		c := b[i]
		i++
		u |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i
		}
	}
	return 0, 0
}

// varlong reads a 64-bit varint at b[i]; next is 0 when it does not end.
func varlong(b []byte, i int) (v int64, next int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return int64(b[i]>>1) ^ -int64(b[i]&1), i + 1
	}
	return varlongSlow(b, i)
}

func varlongSlow(b []byte, i int) (int64, int) {
	var u uint64
	for shift := uint(0); shift < 70; shift += 7 {
		if uint(i) >= uint(len(b)) {
			return 0, 0
		}
		c := b[i]
		i++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
	return 0, 0
}

// appendVarint writes v as varint; the encoding of a 32-bit value and of the
// same value as 64 bits is one and the same.
func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// varintSize is the number of bytes that appendVarint writes.
func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
