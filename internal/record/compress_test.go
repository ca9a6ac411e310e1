package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func samples() map[string][]byte {
	noise := make([]byte, 300_000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	return map[string][]byte{
		"nothing":     {},
		"one byte":    {7},
		"text":        []byte(strings.Repeat("the quick brown fox ", 50)),
		"3 MB zeros":  make([]byte, 3<<20),
		"noise":       noise,
		"64 KiB less": bytes.Repeat([]byte("ab"), 32<<10)[:64<<10-1],
		"64 KiB":      bytes.Repeat([]byte("ab"), 32<<10),
		"64 KiB more": append(bytes.Repeat([]byte("ab"), 32<<10), 'x'),
	}
}

func TestEveryCodecRoundTripsAtEveryLevel(t *testing.T) {
	levels := map[Codec][]int{None: {0}, Gzip: {0, 1, 6, 9}, Snappy: {0}, LZ4: {0, 1, 9, 12, 17}, Zstd: {0, -7, 1, 3, 9, 22}}
	var c Compressor
	dec := new(Decompressor)
	for name, src := range samples() {
		for codec, ls := range levels {
			for _, level := range ls {
				packed, err := c.Compress([]byte("before"), codec, level, src)
				if err != nil || string(packed[:6]) != "before" {
					t.Fatalf("%v level %d of %s: %v", codec, level, name, err)
				}
				got, err := dec.Decompress(codec, packed[6:])
				if err != nil || !bytes.Equal(got, src) {
					t.Errorf("%v level %d of %s: %d bytes back, %v; want %d", codec, level, name, len(got), err, len(src))
				}
			}
		}
	}
}

// Streams of other writers than ours.
func TestForeignFramingsAreRead(t *testing.T) {
	text := []byte(strings.Repeat("the quick brown fox ", 5000))
	zstdWith := func(o ...zstd.EOption) []byte {
		e, err := zstd.NewWriter(nil, o...)
		if err != nil {
			t.Fatal(err)
		}
		return e.EncodeAll(text, nil)
	}
	zstdStream := func() []byte { // as Java's: no content size in the frame
		var out bytes.Buffer
		e, _ := zstd.NewWriter(&out)
		_, _ = e.Write(text[:1])
		_ = e.Flush()
		_, _ = e.Write(text[1:])
		_ = e.Close()
		return out.Bytes()
	}
	lz4With := func(o ...lz4.Option) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(o...); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(text)
		_ = w.Close()
		return out.Bytes()
	}
	gzipMembers := func() []byte {
		var out bytes.Buffer
		for _, part := range [][]byte{text[:100], text[100:]} {
			w := gzip.NewWriter(&out)
			_, _ = w.Write(part)
			_ = w.Close()
		}
		return out.Bytes()
	}
	var c Compressor
	xerial := func(src []byte) []byte { return c.compressXerial(nil, src) }
	tests := []struct {
		name  string
		codec Codec
		src   []byte
	}{
		{"raw snappy, as librdkafka writes it", Snappy, snappy.Encode(nil, text)},
		{"xerial streams one after the other", Snappy, append(xerial(text[:100]), xerial(text[100:])...)},
		{"lz4 with a content checksum and its size", LZ4, lz4With(lz4.ChecksumOption(true), lz4.SizeOption(uint64(len(text))))},
		{"lz4 with block checksums", LZ4, lz4With(lz4.BlockChecksumOption(true))},
		{"lz4 with 4 MiB blocks", LZ4, lz4With(lz4.BlockSizeOption(lz4.Block4Mb))},
		{"lz4 with bytes behind the end mark", LZ4, append(lz4With(), 1, 2, 3)},
		{"zstd with a checksum", Zstd, zstdWith(zstd.WithEncoderCRC(true))},
		{"zstd without one", Zstd, zstdWith(zstd.WithEncoderCRC(false))},
		{"zstd in a stream", Zstd, zstdStream()},
		{"gzip in two members", Gzip, gzipMembers()},
	}
	dec := new(Decompressor)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := dec.Decompress(tt.codec, tt.src); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(text))
			}
		})
	}
}

func TestWrittenLZ4HasKafkasFrameFlags(t *testing.T) {
	var c Compressor
	got, err := c.Compress(nil, LZ4, 0, bytes.Repeat([]byte("x"), 70<<10))
	if err != nil {
		t.Fatal(err)
	}
	// 0x82 is the header checksum of these flags (xxHash32 of 60 40).
	want := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}
	if !bytes.HasPrefix(got, want) || !bytes.HasSuffix(got, []byte{0, 0, 0, 0}) {
		t.Errorf("frame % x … % x, want % x … 00 00 00 00", got[:7], got[len(got)-4:], want)
	}
}

func TestBrokenStreamsAreCorrupt(t *testing.T) {
	var c Compressor
	text := []byte(strings.Repeat("the quick brown fox ", 50))
	pack := func(codec Codec) []byte {
		b, err := c.Compress(nil, codec, 0, text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	patch := func(b []byte, at int, with byte) []byte {
		b = bytes.Clone(b)
		b[at] = with
		return b
	}
	dec := new(Decompressor)
	for codec := Gzip; codec <= Zstd; codec++ {
		whole := pack(codec)
		for n := range len(whole) {
			// A cut at the end of a xerial block is not visible in the stream.
			if got, err := dec.Decompress(codec, whole[:n]); err == nil && len(got) > 0 {
				t.Errorf("%v cut to %d of %d bytes was read", codec, n, len(whole))
			} else if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v cut to %d: %v, want corrupt", codec, n, err)
			}
		}
	}
	lz4 := pack(LZ4)
	tests := []struct {
		name  string
		codec Codec
		src   []byte
	}{
		{"lz4 magic", LZ4, patch(lz4, 0, 5)},
		{"lz4 version 2", LZ4, patch(lz4, 4, 0xa0)},
		{"lz4 linked blocks", LZ4, patch(lz4, 4, 0x40)},
		{"lz4 reserved bit", LZ4, patch(lz4, 4, 0x62)},
		{"lz4 block size code 3", LZ4, patch(lz4, 5, 0x30)},
		{"lz4 header checksum", LZ4, patch(lz4, 6, lz4[6]+1)},
		{"lz4 block length above the maximum", LZ4, patch(lz4, 9, 2)},
		{"gzip magic", Gzip, patch(pack(Gzip), 0, 0)},
		{"snappy declared length", Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}},
		{"zstd magic", Zstd, patch(pack(Zstd), 0, 0)},
		{"zstd reserved block type", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x07, 0, 0}},
	}
	for _, tt := range tests {
		if got, err := dec.Decompress(tt.codec, tt.src); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %d bytes, %v; want corrupt", tt.name, len(got), err)
		}
	}
	if _, err := dec.Decompress(5, lz4); !errors.Is(err, ErrUnknownCodec) {
		t.Errorf("codec 5: %v, want unknown", err)
	}
}

func TestMessageFormat0HasAWrongLZ4HeaderChecksum(t *testing.T) {
	var c Compressor
	b, err := c.Compress(nil, LZ4, 0, []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	b[6] = byte(xxh32(b[:6]) >> 8) // over the frame magic too
	dec := new(Decompressor)
	if _, err := dec.decompress(LZ4, b, false); !errors.Is(err, ErrCorrupt) {
		t.Errorf("format 1: %v, want corrupt", err)
	}
	if got, err := dec.decompress(LZ4, b, true); err != nil || string(got) != "abc" {
		t.Errorf("format 0: %q, %v; want abc", got, err)
	}
}

func TestDecompressedSizeIsCapped(t *testing.T) {
	var c Compressor
	src := make([]byte, 1<<20)
	for codec := Gzip; codec <= Zstd; codec++ {
		packed, err := c.Compress(nil, codec, 0, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{1, 1000, len(src) - 1} {
			dec := &Decompressor{Max: limit}
			if _, err := dec.Decompress(codec, packed); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%v with limit %d: %v, want too large", codec, limit, err)
			}
		}
		dec := &Decompressor{Max: len(src)}
		if got, err := dec.Decompress(codec, packed); err != nil || len(got) != len(src) {
			t.Errorf("%v with an exact limit: %d bytes, %v", codec, len(got), err)
		}
	}
}

// A bomb is stopped at 128 times its size and 16 MiB, whatever the limit says.
func TestBombsAreStoppedEarly(t *testing.T) {
	const size = 64 << 20
	var c Compressor
	for codec := Gzip; codec <= Zstd; codec++ {
		packed, err := c.Compress(nil, codec, 0, make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		if 128*len(packed)+16<<20 >= size {
			continue // this codec cannot compress enough to be a bomb
		}
		dec := new(Decompressor)
		if _, err := dec.Decompress(codec, packed); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v of %d bytes: %v, want too large", codec, len(packed), err)
		}
		if kept := cap(dec.scratch); kept > 64<<20 {
			t.Errorf("%v: %d bytes were allocated", codec, kept)
		}
	}
	// Zstandard blocks of four bytes that repeat one byte 128 KiB times.
	bomb := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58}
	for i := range 1000 {
		word := uint32(128<<10)<<3 | 1<<1
		if i == 999 {
			word |= 1
		}
		bomb = append(bomb, byte(word), byte(word>>8), byte(word>>16), 'x')
	}
	if _, err := new(Decompressor).Decompress(Zstd, bomb); !errors.Is(err, ErrTooLarge) {
		t.Errorf("zstd blocks: %v, want too large", err)
	}
}

func TestALargeScratchBufferIsNotKept(t *testing.T) {
	var c Compressor
	noise := samples()["noise"]
	big, err := c.Compress(nil, Snappy, 0, bytes.Repeat(noise, 70))
	if err != nil {
		t.Fatal(err)
	}
	dec := new(Decompressor)
	if _, err := dec.Decompress(Snappy, big); err != nil {
		t.Fatal(err)
	}
	small, _ := c.Compress(nil, Snappy, 0, []byte("x"))
	if _, err := dec.Decompress(Snappy, small); err != nil {
		t.Fatal(err)
	}
	if cap(dec.scratch) > keepScratch {
		t.Errorf("kept %d bytes, want at most %d", cap(dec.scratch), keepScratch)
	}
}

func TestPoolHandsOutAsManyAsItWasMadeWith(t *testing.T) {
	p := NewPool(2, 99)
	a, b := p.Get(), p.Get()
	if a == b || a.Max != 99 {
		t.Errorf("got %p and %p with limit %d", a, b, a.Max)
	}
	got := make(chan *Decompressor)
	go func() { got <- p.Get() }()
	p.Put(b)
	if c := <-got; c != b {
		t.Errorf("got %p, want the one that came back, %p", c, b)
	}
	a.scratch = make([]byte, keepScratch+1)
	p.Put(a)
	if c := p.Get(); cap(c.scratch) > keepScratch {
		t.Errorf("a pooled one keeps %d bytes, want at most %d", cap(c.scratch), keepScratch)
	}
}

func TestXXH32(t *testing.T) {
	tests := map[string]uint32{"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff,
		"Nobody inspects the spammish repetition": 0xe2293b2f}
	for s, want := range tests {
		if got := xxh32([]byte(s)); got != want {
			t.Errorf("xxh32(%q) = %08x, want %08x", s, got, want)
		}
	}
}

func TestCodecNames(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		if got, ok := ParseCodec(c.String()); !ok || got != c || !c.Valid() {
			t.Errorf("ParseCodec(%v) = %v, %v", c, got, ok)
		}
	}
	if got, ok := ParseCodec("uncompressed"); !ok || got != None {
		t.Errorf("ParseCodec(uncompressed) = %v, %v", got, ok)
	}
	if _, ok := ParseCodec("producer"); ok || Codec(5).Valid() {
		t.Error("producer or 5 passed for a codec")
	}
}

func FuzzDecompress(f *testing.F) {
	var c Compressor
	for codec := None; codec <= Zstd; codec++ {
		for _, s := range []string{"", "x", strings.Repeat("the quick brown fox ", 20)} {
			b, err := c.Compress(nil, codec, 0, []byte(s))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(codec), b)
		}
	}
	f.Fuzz(func(t *testing.T, codec byte, src []byte) {
		const limit = 1 << 20
		dec := &Decompressor{Max: limit}
		got, err := dec.decompress(Codec(codec&7), src, codec&8 != 0)
		if err != nil || Codec(codec&7) == None {
			return
		}
		if len(got) > limit {
			t.Fatalf("%d bytes, want at most %d", len(got), limit)
		}
		var c Compressor
		packed, err := c.Compress(nil, Codec(codec&7), 0, got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := new(Decompressor).Decompress(Codec(codec&7), packed)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("what was read does not round trip: %v", err)
		}
	})
}

// lengthPrefixed is used by tests that build old message sets.
func lengthPrefixed(b []byte) []byte {
	if b == nil {
		return []byte{0xff, 0xff, 0xff, 0xff}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}
