package floor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dataSize is the size of the page-cached data file: larger than any L3 in common use.
const dataSize = 256 << 20

// Figure is one measured quantity: its unit and a sample per round.
type Figure struct {
	Unit    string
	Samples []float64
}

// Env is what every group shares: where to write, how often to repeat, and what was measured so far.
type Env struct {
	Dir      string
	Rounds   int
	Cores    []int // the first two processors this process may use
	Facts    map[string]string
	Figures  map[string]Figure
	Seconds  map[string]float64 // that each group took
	Deadline time.Time          // of the current group
	dataPath string
}

// NewEnv gathers the facts of the machine; data files go into dir.
func NewEnv(dir string, rounds int) (*Env, error) {
	e := &Env{Dir: dir, Rounds: max(1, rounds), Facts: map[string]string{}, Figures: map[string]Figure{}, Seconds: map[string]float64{}}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for i := 0; i < 1024 && len(e.Cores) < 2; i++ {
		if set.IsSet(i) {
			e.Cores = append(e.Cores, i)
		}
	}
	e.GatherFacts()
	return e, nil
}

// more says whether a group may begin another round: the first one always, later ones while time is left.
func (e *Env) More(round int) bool {
	return round <= 0 || round < e.Rounds && time.Now().Before(e.Deadline)
}

// data returns the path of the page-cached data file and makes it on first use.
func (e *Env) data() (string, error) {
	if e.dataPath != "" {
		return e.dataPath, nil
	}
	name := filepath.Join(e.Dir, "data.log")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	// In pieces of a batch, as a log is written: the page cache keeps what one write brought together, and
	// sendfile pays for each piece. Written in pieces of 1 MiB the same file would cost 0.6 of it to send.
	buf := make([]byte, 16<<10)
	fill(buf, 1)
	for n := 0; n < dataSize; n += len(buf) {
		buf[0] = byte(n >> 14)
		if _, err := f.Write(buf); err != nil {
			f.Close()
			return "", err
		}
	}
	e.dataPath = name
	return name, f.Close()
}

// fill writes bytes that do not compress and do not repeat within a page.
func fill(b []byte, seed uint64) {
	x := seed*2862933555777941757 + 3037000493
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

func readLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

func (e *Env) GatherFacts() {
	e.Facts["go"] = runtime.Version()
	e.Facts["processors"] = fmt.Sprint(runtime.NumCPU())
	e.Facts["processor"] = cpuinfo("model name") + " family " + cpuinfo("cpu family") + " model " + cpuinfo("model")
	e.Facts["kernel"] = readLine("/proc/sys/kernel/osrelease")
	e.Facts["congestion control"] = readLine("/proc/sys/net/ipv4/tcp_congestion_control")
	e.Facts["file system"] = fileSystem(e.Dir)
	e.Facts["load"] = strings.Join(strings.Fields(readLine("/proc/loadavg"))[:1], "")
	e.Facts["nofile"] = nofile()
	e.Facts["date"] = time.Now().UTC().Format("2006-01-02")
	if ra, ok := readAhead(e.Dir); ok {
		e.Facts["read-ahead KiB"] = ra
	}
}

func cpuinfo(key string) string {
	for _, l := range strings.Split(readLine("/proc/cpuinfo"), "\n") {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "?"
}

func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "?"
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs (sendfile, fallocate and fdatasync figures say nothing here)"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("%#x", st.Type)
}

func nofile() string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return "?"
	}
	return fmt.Sprint(r.Cur)
}

func readAhead(dir string) (string, bool) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return "", false
	}
	base := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	for _, p := range []string{base + "/queue/read_ahead_kb", base + "/../queue/read_ahead_kb"} {
		if v := readLine(p); v != "?" {
			return v, true
		}
	}
	return "", false
}

func (e *Env) PrintFacts() {
	keys := make([]string, 0, len(e.Facts))
	for k := range e.Facts {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Printf("%-28s %s\n", k, e.Facts[k])
	}
}

// add records the samples of one figure under a key that stays the same from release to release.
func (e *Env) Add(key, unit string, samples ...float64) {
	f := e.Figures[key]
	f.Unit = unit
	f.Samples = append(f.Samples, samples...)
	e.Figures[key] = f
}

// show prints the figures whose keys are given, one a line.
func (e *Env) Show(keys ...string) {
	for _, k := range keys {
		f, ok := e.Figures[k]
		if !ok || len(f.Samples) == 0 {
			continue
		}
		lo, hi := Extremes(f.Samples)
		fmt.Printf("  %-44s %10s  [%s – %s] %s\n", k, Number(Median(f.Samples)), Number(lo), Number(hi), f.Unit)
	}
}

func (e *Env) Value(key string) float64 {
	f, ok := e.Figures[key]
	if !ok {
		return 0
	}
	return Median(f.Samples)
}

func Number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}

func Extremes(v []float64) (lo, hi float64) {
	lo, hi = v[0], v[0]
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
	}
	return lo, hi
}

// quantile takes sorted samples.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// pinned runs f on a thread bound to one processor and returns the CPU seconds that the thread used.
func Pinned(core int, f func()) float64 {
	done := make(chan float64)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(core)
		_ = unix.SchedSetaffinity(0, &set)
		before := threadCPU()
		f()
		done <- threadCPU() - before
	}()
	return <-done
}

func threadCPU() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}

// ProcessCPU returns the CPU seconds that a process has used so far, ended threads included, to the nanosecond.
func ProcessCPU(pid int) (float64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return float64(ts.Sec) + float64(ts.Nsec)/1e9, nil
}

func size(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}
