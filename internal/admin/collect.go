package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"maps"
	"net/http"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"

	vm "github.com/VictoriaMetrics/metrics"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/vfs"
)

// openMetrics is the type of OpenMetrics 1.0, which a scraper may ask for.
const openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	open := strings.Contains(r.Header.Get("Accept"), "application/openmetrics-text")
	if open {
		w.Header().Set("Content-Type", openMetrics)
	} else {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	}
	p := newPage(w)
	p.open = open
	s.collect(p, s.o.Look())
	_ = p.flush() // an error here is a client that left
}

// collect writes the whole page. What is not there yet is left out, not zero.
func (s *Server) collect(p *page, v *View) {
	p.begin("varve_build_info")
	p.sample(1, "version", s.o.Build.Version, "go", s.o.Build.Go, "commit", s.o.Build.Commit)
	p.whole("varve_ready", number(readinessOf(v).Ready))
	p.whole("kafka_server_kafkaserver_brokerstate", int64(v.State))
	s.collectEvents(p)
	if v.State >= Recovery {
		p.begin("varve_recovery_partitions")
		p.count(int64(v.Loaded), "state", "done")
		p.count(int64(v.ToLoad-v.Loaded), "state", "waiting")
	}
	collectDirs(p, v)
	collectSyncs(p, v)
	collectNetwork(p, v)
	if v.Replicas != nil {
		s.collectPartitions(p, v)
	}
	if v.Quorum != nil {
		collectMetadata(p, v)
	}
	if v.Groups != nil {
		c := v.Groups.Counts()
		p.whole("kafka_coordinator_group_groupmetadatamanager_numgroups", int64(c.Groups))
		p.whole("kafka_coordinator_group_groupmetadatamanager_numoffsets", int64(c.Offsets))
	}
	collectProcess(p, v)
	if p.open {
		p.w.WriteString("# EOF\n")
	}
}

func (s *Server) collectEvents(p *page) {
	if s.o.Events == nil {
		return
	}
	counts := s.o.Events()
	p.begin("varve_events_total")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		p.count(int64(counts[name]), "event", name)
	}
	// Each kind of damage has an event of its own; the kinds are what was damaged. A
	// log that recovery cut is damaged when whole batches lay behind the cut.
	if s.o.Errors != nil {
		counts["corrupt-batch"] += s.o.Errors()["tail-cut"]
	}
	counts["snapshot-dropped"] += counts["snapshot-rebuilt"]
	p.begin("varve_corruption_total")
	for _, k := range []struct{ kind, event string }{
		{"checkpoint", "checkpoint-rebuilt"}, {"index", "index-rebuilt"}, {"log", "corrupt-batch"}, {"snapshot", "snapshot-dropped"},
	} {
		p.count(int64(counts[k.event]), "kind", k.kind)
	}
}

func collectDirs(p *page, v *View) {
	if v.Dirs == nil {
		return
	}
	dirs := v.Dirs.States()
	each := func(name string, f func(i int) (int64, bool)) {
		label := lookup(name).Labels
		p.begin(name)
		for i, d := range dirs {
			if n, ok := f(i); ok {
				p.count(n, label, d.Path)
			}
		}
	}
	each("varve_log_dir_free_bytes", func(i int) (int64, bool) { return dirs[i].Free, dirs[i].Free >= 0 })
	each("varve_log_dir_used_bytes", func(i int) (int64, bool) { return dirs[i].Used, dirs[i].Err == nil })
	each("varve_log_dir_read_only", func(i int) (int64, bool) { return number(dirs[i].ReadOnly || dirs[i].Err != nil), true })
	each("kafka_log_logmanager_logdirectoryoffline", func(i int) (int64, bool) { return number(dirs[i].Err != nil), true })
	each("kafka_log_logcleanermanager_uncleanable_partitions_count", func(i int) (int64, bool) { return int64(dirs[i].Uncleanable), true })
	offline := 0
	for _, d := range dirs {
		if d.Err != nil {
			offline++
		}
	}
	p.whole("kafka_log_logmanager_offlinelogdirectorycount", int64(offline))
	open, limit := v.Dirs.OpenSegments()
	p.whole("varve_segments_open", int64(open))
	p.whole("varve_segments_open_limit", int64(limit))
}

func collectSyncs(p *page, v *View) {
	h := v.Syncs
	if len(h.Bounds) == 0 {
		return
	}
	p.begin("varve_fsync_seconds")
	for i, bound := range h.Bounds {
		p.part("_bucket", float64(h.Cumulative[i]), "le", strconv.FormatFloat(bound.Seconds(), 'g', -1, 64))
	}
	p.part("_bucket", float64(h.Count), "le", "+Inf")
	p.part("_sum", h.Sum.Seconds())
	p.part("_count", float64(h.Count))
}

func collectNetwork(p *page, v *View) {
	if len(v.Listeners) > 0 {
		p.begin("varve_connections")
		for _, l := range v.Listeners {
			p.count(l.Stats().Open, "listener", l.Name())
		}
		p.begin("varve_connections_accepted_total")
		for _, l := range v.Listeners {
			p.count(l.Stats().Accepted, "listener", l.Name())
		}
		p.begin("varve_requests_total")
		for _, l := range v.Listeners {
			p.count(l.Stats().Requests, "listener", l.Name())
		}
	}
	if v.Admission != nil {
		p.whole("varve_request_memory_bytes", v.Admission.RequestBytes())
		p.whole("varve_request_memory_limit_bytes", v.Admission.RequestBytesLimit())
	}
}

// collectPartitions writes what there is of each partition, and the sums.
func (s *Server) collectPartitions(p *page, v *View) {
	list := v.Replicas.Partitions()
	slices.SortFunc(list, func(a, b *replica.Partition) int {
		x, y := a.Name(), b.Name()
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	var leading, offline, under, underMin, atMin int64
	for _, part := range list {
		role := part.Role()
		if part.Log() == nil || part.Err() != nil {
			offline++
		}
		if !part.Leading() {
			continue
		}
		leading++
		under += number(len(role.ISR) < len(role.Replicas))
		underMin += number(len(role.ISR) < role.MinISR)
		atMin += number(len(role.ISR) == role.MinISR)
	}
	p.whole("kafka_server_replicamanager_partitioncount", int64(len(list)))
	p.whole("kafka_server_replicamanager_leadercount", leading)
	p.whole("kafka_server_replicamanager_offlinereplicacount", offline)
	p.whole("kafka_server_replicamanager_underreplicatedpartitions", under)
	p.whole("kafka_server_replicamanager_underminisrpartitioncount", underMin)
	p.whole("kafka_server_replicamanager_atminisrpartitioncount", atMin)
	dropped := len(list) > s.o.PartitionLimit
	p.whole("varve_metrics_partition_series_dropped", number(dropped))
	if dropped {
		return
	}
	each := func(name string, f func(part *replica.Partition) int64) {
		p.begin(name)
		for _, part := range list {
			if part.Log() != nil {
				tp := part.Name()
				p.count(f(part), "topic", tp.Topic, "partition", strconv.Itoa(int(tp.Partition)))
			}
		}
	}
	each("kafka_log_log_size", func(part *replica.Partition) int64 { return part.Log().Size() })
	each("kafka_log_log_numlogsegments", func(part *replica.Partition) int64 { return int64(len(part.Log().Segments())) })
	each("kafka_log_log_logstartoffset", func(part *replica.Partition) int64 { return int64(part.Log().StartOffset()) })
	each("kafka_log_log_logendoffset", func(part *replica.Partition) int64 { return int64(part.Log().EndOffset()) })
	each("kafka_cluster_partition_laststableoffsetlag", func(part *replica.Partition) int64 {
		stable := part.Log().LastStable() // first: it never goes back
		return max(0, int64(part.Log().HighWatermark()-stable))
	})
}

func collectMetadata(p *page, v *View) {
	image := v.Quorum.Image()
	var active, fenced, partitions, offline int64
	for _, b := range image.Brokers.All() {
		active += number(!b.Fenced)
		fenced += number(b.Fenced)
	}
	for _, t := range image.Topics.All() {
		for _, part := range t.Partitions.All() {
			partitions++
			offline += number(part.Leader == kafka.NoBroker)
		}
	}
	p.whole("kafka_controller_kafkacontroller_activecontrollercount", 1)
	p.whole("kafka_controller_kafkacontroller_activebrokercount", active)
	p.whole("kafka_controller_kafkacontroller_fencedbrokercount", fenced)
	p.whole("kafka_controller_kafkacontroller_globaltopiccount", int64(image.Topics.Len()))
	p.whole("kafka_controller_kafkacontroller_globalpartitioncount", partitions)
	p.whole("kafka_controller_kafkacontroller_offlinepartitionscount", offline)
	p.whole("kafka_server_raft_metrics_current_epoch", int64(v.Quorum.Epoch()))
	p.whole("kafka_server_raft_metrics_log_end_offset", int64(image.End))
	p.whole("kafka_server_metadataloader_currentmetadataversion", int64(image.Feature(metadata.MetadataVersion)))
}

// collectProcess writes what the process takes: the library's process_* and
// go_*, and what it does not have.
func collectProcess(p *page, _ *View) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if heap[0].Value.Kind() == metrics.KindUint64 {
		p.begin("jvm_memory_used_bytes")
		p.count(int64(heap[0].Value.Uint64()), "area", "heap")
	}
	if maps, limit, ok := vfs.Maps(); ok {
		p.whole("varve_maps", int64(maps))
		p.whole("varve_map_limit", int64(limit))
	}
	if limit, ok := vfs.OpenFilesLimit(); ok {
		p.whole("varve_files_open_limit", limit)
	}
	var b bytes.Buffer
	vm.WriteProcessMetrics(&b)
	lines := bufio.NewScanner(&b)
	for lines.Scan() {
		if line := lines.Text(); !p.open || !strings.HasPrefix(line, "#") {
			p.w.WriteString(line + "\n")
		}
	}
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
