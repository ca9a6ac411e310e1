package server

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/wire"
)

// dataFile is a file of random bytes on the real disk.
func dataFile(t testing.TB, size int) (vfs.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(data)
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

func regionRequest(id int32, ranges ...[2]int) []byte {
	var body []byte
	for _, r := range ranges {
		body = binary.BigEndian.AppendUint64(body, uint64(r[0]))
		body = binary.BigEndian.AppendUint64(body, uint64(r[1]))
	}
	return request(keyRegion, 1, id, body)
}

// wantRegions is the body that keyRegion answers with.
func wantRegions(data []byte, ranges ...[2]int) []byte {
	var body []byte
	for _, r := range ranges {
		body = binary.BigEndian.AppendUint32(body, uint32(r[1]))
		body = append(body, data[r[0]:r[0]+r[1]]...)
	}
	return body
}

func TestRegionsAreInterleavedWithBytes(t *testing.T) {
	file, data := dataFile(t, 8<<20)
	const min = sendfile.MinRegion
	tests := []struct {
		name   string
		ranges [][2]int
	}{
		{"one small", [][2]int{{7, 100}}},
		{"one large", [][2]int{{100, min}}},
		{"one megabyte", [][2]int{{4096, 1 << 20}}},
		{"small, large, small", [][2]int{{1, 10}, {5, 200_000}, {9, 20}}},
		{"large, small, large", [][2]int{{1, min + 1}, {5, 20}, {9, min + 7}}},
		{"more small ones than a burst holds", [][2]int{{0, min - 1}, {1, min - 1}, {2, min - 1}, {3, min - 1}, {4, min - 1}}},
		{"ends at the end of the file", [][2]int{{8<<20 - 50, 50}}},
		{"larger than the socket's buffers", [][2]int{{0, 8 << 20}}},
	}
	l, _ := listen(t, Config{}, &testHandler{file: file})
	c := dial(t, l)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frames := append(regionRequest(1, tt.ranges...), regionRequest(2, tt.ranges...)...)
			write(t, c, append(frames, request(keyEcho, 1, 3, []byte("behind"))...))
			wantAnswer(t, c, 1, wantRegions(data, tt.ranges...))
			wantAnswer(t, c, 2, wantRegions(data, tt.ranges...))
			wantAnswer(t, c, 3, []byte("behind"))
		})
	}
}

func TestRegionsReleaseTheirReferenceOnce(t *testing.T) {
	file, _ := dataFile(t, 1<<10)
	released := make(map[int]int)
	var c wire.Chunks
	c.Begin(1, false, false)
	for i := range 3 {
		c.Records(vfs.Region{File: file, Length: 10, Release: func() { released[i]++ }}, nil)
	}
	c.End()
	c.Begin(2, false, false)
	c.Records(vfs.Region{File: file, Length: 10, Release: func() { released[3]++ }}, nil)
	c.Abort()
	if len(released) != 1 || released[3] != 1 {
		t.Errorf("after the abort of the second answer released %v, want its region alone", released)
	}
	c.Reset()
	for i := range 4 {
		if released[i] != 1 {
			t.Errorf("region %d released %d times, want once", i, released[i])
		}
	}
}

func TestAFileThatEndsEarlyClosesTheConnection(t *testing.T) {
	file, _ := dataFile(t, 100_000)
	l, logs := listen(t, Config{}, &testHandler{file: file})
	for _, n := range []int{1000, 200_000} {
		c := dial(t, l)
		write(t, c, regionRequest(1, [2]int{99_900, n}))
		io.Copy(io.Discard, c)
		eventually(t, "the record", func() bool { return strings.Contains(logs.String(), "reason=file") })
	}
}

func TestAPeerThatTakesNothingIsClosed(t *testing.T) {
	file, _ := dataFile(t, 16<<20)
	l, logs := listen(t, Config{SendTimeout: 50 * time.Millisecond}, &testHandler{file: file})
	c := dial(t, l)
	write(t, c, regionRequest(1, [2]int{0, 16 << 20}))
	eventually(t, "the record", func() bool { return strings.Contains(logs.String(), "reason=send-timeout") })
}
