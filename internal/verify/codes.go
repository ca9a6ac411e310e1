package verify

// Code is the stable name of a kind of finding.
type Code string

// All codes. A number is never used for something else.
const (
	CodeUnreadable    Code = "V001" // a file or directory cannot be read
	CodeMeta          Code = "V002" // meta.properties is missing or broken
	CodeMetaDisagree  Code = "V003" // the directories do not belong together
	CodeCheckpoint    Code = "V004" // a checkpoint file is broken
	CodeCheckpointLog Code = "V005" // a checkpointed offset is not in the log
	CodeCleanMarker   Code = "V006" // the clean-shutdown marker is broken
	CodeForeign       Code = "V007" // a directory that Kafka refuses to start with
	CodeInUse         Code = "V008" // a broker is at work on the directory
	CodeNoCheckpoint  Code = "V009" // a checkpoint that a clean stop leaves is missing or empty
	CodeFraming       Code = "V010" // bytes that are no batch
	CodeChecksum      Code = "V011" // a batch whose checksum is wrong
	CodeTail          Code = "V012" // bytes behind the last whole batch
	CodeOffsets       Code = "V013" // offsets that do not rise
	CodeMagic         Code = "V014" // an unknown batch format
	CodeRecords       Code = "V015" // records that cannot be read
	CodeRange         Code = "V016" // offsets outside the range of their segment
	CodeCount         Code = "V017" // a record count that does not fit the offsets
	CodeMaxTimestamp  Code = "V018" // a batch's maximum timestamp that no record has
	CodeHole          Code = "V019" // a segment is missing from the middle of the log
	CodeIndexSize     Code = "V020" // an offset index of a size that is no whole number of entries
	CodeIndexOrder    Code = "V021" // offset index entries that do not rise
	CodeIndexPosition Code = "V022" // an entry that does not point at the batch of its offset
	CodeIndexInner    Code = "V023" // an entry that points at an earlier batch than its offset's
	CodeIndexMissing  Code = "V024" // no offset index
	CodeNoLog         Code = "V025" // an index without a log
	CodeTimeSize      Code = "V030" // the same four for the time index
	CodeTimeOrder     Code = "V031"
	CodeTimeOffset    Code = "V032"
	CodeTimestamp     Code = "V033" // an entry whose timestamp is not that of its batch
	CodeTimeMissing   Code = "V034"
	CodeTxnIndex      Code = "V040" // a broken transaction index
	CodeTxnOrder      Code = "V041" // entries that do not rise or contradict themselves
	CodeTxnMarker     Code = "V042" // an entry without its abort marker
	CodeSnapshot      Code = "V050" // a broken producer snapshot
	CodeSnapshotRange Code = "V051" // a snapshot or producer beyond the end of the log
	CodeNoSnapshot    Code = "V052" // no producer snapshot, although producers wrote
	CodeEpochFile     Code = "V060" // leader epochs that do not rise
	CodeEpochRange    Code = "V061" // a leader epoch that starts beyond the end of the log
	CodeEpochBatch    Code = "V062" // a batch of another leader epoch than the file says
	CodeNoEpochs      Code = "V063" // no leader epochs, although the batches have them
	CodePartition     Code = "V070" // partition.metadata is missing or broken
	CodeTopicID       Code = "V071" // the topic has another id in the cluster metadata
	CodeStray         Code = "V072" // the topic is not in the cluster metadata
	CodeLeftover      Code = "V080" // a file of an interrupted or pending change
	CodeUnknown       Code = "V081" // an entry whose name Kafka does not know
	CodeKept          Code = "V082" // what recovery or a repair has set aside
	CodeQuorumState   Code = "V090" // quorum-state is missing or broken
	CodeKRaftSnapshot Code = "V091" // a snapshot of the metadata log is missing or broken
	CodeMetadata      Code = "V092" // a metadata record cannot be read
	CodeNoMetadata    Code = "V093" // the metadata log is missing
)
