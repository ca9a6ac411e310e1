package commitlog

import (
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestAbortedTransactionsOutliveARecoveryThatIsStopped recovers a segment below
// the recovery point, for an index of it is missing or damaged, and stops that
// after each file operation. The next start believes the segment: with a
// transaction index that was emptied and not yet filled again it would serve what
// was aborted.
func TestAbortedTransactionsOutliveARecoveryThatIsStopped(t *testing.T) {
	damages := map[string]func(d *damaged){
		"a missing offset index": func(d *damaged) { d.remove(d.file(0, segment.IndexExt)) },
		"half an entry of the transaction index": func(d *damaged) {
			d.truncate(d.file(0, segment.TxnIndexExt), 34+17)
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			d := &damaged{bench: newBench(t, nil)}
			for i := range 2 {
				o := from(kafka.ProducerID(5+i), 0, 0)
				o.Transactional = true
				d.send(2, o)
				m := record.AppendEndTxnMarker(nil, &record.EndTxnMarker{ProducerID: o.ProducerID, Timestamp: kafka.Timestamp(d.now)})
				if _, err := d.log.AppendAsLeader(m, 0, AppendOptions{Origin: Coordinator}); err != nil {
					t.Fatal(err)
				}
			}
			d.roll()
			d.append(1)
			end := d.log.EndOffset()
			if err := d.log.Close(); err != nil {
				t.Fatal(err)
			}
			d.opts.RecoveryPoint, d.opts.HighWatermark = end, end
			damage(d)
			d.durableDir()
			d.sync()
			start := d.disk
			_, ops := d.stopped(start.Crash(memfs.KeepAll()), -1, true)
			for limit := range ops + 1 {
				for what, c := range map[string]memfs.Choice{
					"killed": memfs.KeepAll(), "power cut": memfs.DropAll(), "power cut that left some": memfs.Random(0.5, uint64(limit)),
				} {
					disk := start.Crash(memfs.KeepAll())
					d.stopped(disk, limit, true)
					d.disk = disk
					d.powerCut(c)
					r, err := d.log.Read(0, ReadOptions{MaxBytes: 1 << 20, Bound: LastStable, Aborted: true})
					if err != nil {
						t.Fatal(err)
					}
					r.Region.Release()
					if len(r.Aborted) != 2 {
						t.Errorf("%s after %d of %d operations: aborted %v, want the transactions of producers 5 and 6", what, limit, ops, r.Aborted)
					}
					if err := d.log.Abandon(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
