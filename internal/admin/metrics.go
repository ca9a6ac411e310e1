package admin

// Metric is one family of the metrics page.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels string // names, separated by blanks
	Help   string
}

// Catalogue lists the families of the metrics page, in the order of
// docs/metrics.md, which a test compares. The names that begin with process_
// and go_ are those of the library that reads them; they are not in it.
func Catalogue() []Metric {
	return []Metric{
		{"varve_build_info", "gauge", "version go commit", "What runs; always 1."},
		{"varve_ready", "gauge", "", "1 while /readyz answers 200."},
		{"varve_events_total", "counter", "event", "Log records with this event, those that the log left out included."},
		{"varve_corruption_total", "counter", "kind", "Damage that was met since the start."},
		{"varve_recovery_partitions", "gauge", "state", "Partitions to open at the start: those that are done and those that are to come."},
		{"varve_log_dir_free_bytes", "gauge", "dir", "Bytes that may still be written to the file system of a data directory."},
		{"varve_log_dir_used_bytes", "gauge", "dir", "Bytes of the log files in a data directory."},
		{"varve_log_dir_read_only", "gauge", "dir", "1 while writes to a data directory are refused: for want of room, or for good."},
		{"varve_fsync_seconds", "histogram", "", "How long syncs of files and directories took, those through memory maps left out."},
		{"varve_connections", "gauge", "listener", "Open connections."},
		{"varve_connections_accepted_total", "counter", "listener", "Connections taken in."},
		{"varve_requests_total", "counter", "listener", "Requests that came whole."},
		{"varve_request_memory_bytes", "gauge", "", "Memory that requests hold."},
		{"varve_request_memory_limit_bytes", "gauge", "", "Most memory that requests may hold."},
		{"varve_files_open_limit", "gauge", "", "Most files the process may have open."},
		{"varve_segments_open", "gauge", "", "Sealed segments whose files are open."},
		{"varve_segments_open_limit", "gauge", "", "Most sealed segments whose files may be open."},
		{"varve_maps", "gauge", "", "Memory maps of the process."},
		{"varve_map_limit", "gauge", "", "Most memory maps that the system lets the process have."},
		{"varve_metrics_partition_series_dropped", "gauge", "", "1 when the series of single partitions are left out because there are too many."},
		{"kafka_server_kafkaserver_brokerstate", "gauge", "", "1 starting, 2 recovery, 3 running, 7 shutting down."},
		{"kafka_server_replicamanager_partitioncount", "gauge", "", "Partitions on this broker."},
		{"kafka_server_replicamanager_leadercount", "gauge", "", "Partitions that this broker leads."},
		{"kafka_server_replicamanager_offlinereplicacount", "gauge", "", "Partitions of this broker whose log cannot be used."},
		{"kafka_server_replicamanager_underreplicatedpartitions", "gauge", "", "Led partitions with fewer in-sync replicas than replicas."},
		{"kafka_server_replicamanager_underminisrpartitioncount", "gauge", "", "Led partitions with fewer in-sync replicas than min.insync.replicas."},
		{"kafka_server_replicamanager_atminisrpartitioncount", "gauge", "", "Led partitions with exactly min.insync.replicas in-sync replicas."},
		{"kafka_controller_kafkacontroller_activecontrollercount", "gauge", "", "1: the controller is in this process."},
		{"kafka_controller_kafkacontroller_activebrokercount", "gauge", "", "Registered brokers that are not fenced."},
		{"kafka_controller_kafkacontroller_fencedbrokercount", "gauge", "", "Registered brokers that are fenced."},
		{"kafka_controller_kafkacontroller_globaltopiccount", "gauge", "", "Topics."},
		{"kafka_controller_kafkacontroller_globalpartitioncount", "gauge", "", "Partitions of all topics."},
		{"kafka_controller_kafkacontroller_offlinepartitionscount", "gauge", "", "Partitions without a leader."},
		{"kafka_log_log_size", "gauge", "topic partition", "Bytes of the log, without index files."},
		{"kafka_log_log_numlogsegments", "gauge", "topic partition", "Segments of the log."},
		{"kafka_log_log_logstartoffset", "gauge", "topic partition", "First offset that may be read."},
		{"kafka_log_log_logendoffset", "gauge", "topic partition", "Offset of the next record."},
		{"kafka_cluster_partition_laststableoffsetlag", "gauge", "topic partition", "Records below the high watermark that read_committed does not see yet."},
		{"kafka_log_logmanager_offlinelogdirectorycount", "gauge", "", "Data directories that are offline."},
		{"kafka_log_logmanager_logdirectoryoffline", "gauge", "logDirectory", "1 when a data directory is offline."},
		{"kafka_log_logcleanermanager_uncleanable_partitions_count", "gauge", "logDirectory", "Partitions that compaction has given up."},
		{"kafka_coordinator_group_groupmetadatamanager_numgroups", "gauge", "", "Groups of the loaded partitions of __consumer_offsets."},
		{"kafka_coordinator_group_groupmetadatamanager_numoffsets", "gauge", "", "Committed offsets of the loaded partitions of __consumer_offsets."},
		{"kafka_server_raft_metrics_current_epoch", "gauge", "", "Epoch of the metadata log."},
		{"kafka_server_raft_metrics_log_end_offset", "gauge", "", "End of the metadata log."},
		{"kafka_server_metadataloader_currentmetadataversion", "gauge", "", "Feature level of metadata.version."},
		{"jvm_memory_used_bytes", "gauge", "area", "Heap in use, under the name that dashboards ask for."},
	}
}

func lookup(name string) Metric {
	for _, m := range Catalogue() {
		if m.Name == name {
			return m
		}
	}
	return Metric{Name: name, Type: "untyped", Help: "Not in the catalogue."}
}
