package commitlog

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/vfs/faultfs"
)

// A topic that is deleted while its log is flushed, or while its epochs are
// written, must not take the data directory offline: what is written in the
// background finds its files until it is done.
func TestARenameWaitsForWhatIsWrittenInTheBackground(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   faultfs.Op // the operation beside which the rename is asked for
		work func(*bench) error
	}{
		{"a flush", faultfs.Op{Kind: faultfs.SyncDir, Name: "test-0"}, func(b *bench) error { return b.log.Flush(b.log.EndOffset()) }},
		{"the leader epochs", faultfs.Op{Kind: faultfs.Sync, Name: "leader-epoch-checkpoint.tmp"}, func(b *bench) error {
			_, err := b.log.MaybeIncrementStartOffset(1)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b *bench
			var armed, renamed atomic.Bool
			var running sync.WaitGroup
			b = newBench(t, func(o *Options) {
				o.FS = faultfs.Wrap(o.FS, func(op faultfs.Op) faultfs.Fault {
					if op.Kind != tt.at.Kind || !strings.HasSuffix(op.Name, tt.at.Name) || !armed.CompareAndSwap(true, false) {
						return faultfs.Fault{}
					}
					running.Go(func() {
						if err := b.log.Rename("/d/test-0.0123456789abcdef0123456789abcdef-delete"); err != nil {
							t.Error(err)
						}
						renamed.Store(true)
					})
					for range 10_000 { // the chance to be wrong
						if renamed.Load() {
							break
						}
						runtime.Gosched()
					}
					return faultfs.Fault{}
				})
				o.Background = func(f func()) { running.Go(f) }
			})
			b.append(2)
			b.append(2)
			armed.Store(true)
			if err := tt.work(b); err != nil {
				t.Error(err)
			}
			running.Wait()
			if err := b.log.Failure(); err != nil || armed.Load() {
				t.Errorf("the log is offline: %v; armed still: %v", err, armed.Load())
			}
		})
	}
}
