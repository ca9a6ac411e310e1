package segment

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
)

// The files of a partition directory that are numbered by an offset. The name
// is the offset in 20 digits and the extension.
const (
	LogExt       = ".log"
	IndexExt     = ".index"
	TimeIndexExt = ".timeindex"
	TxnIndexExt  = ".txnindex"
	SnapshotExt  = ".snapshot"   // producer state up to the offset, package producer
	KraftExt     = ".checkpoint" // metadata snapshot, named offset-epoch
)

// What is appended to a complete name while a file is on its way in or out.
const (
	DeletedSuffix = ".deleted" // awaiting its unlinking
	CleanedSuffix = ".cleaned" // output of the cleaner or of a split, still being written
	SwapSuffix    = ".swap"    // complete, ready to take the place of others
)

// Name is the file name for a base offset: Name(42, LogExt) is 00000000000000000042.log.
func Name(base kafka.Offset, ext string) string { return fmt.Sprintf("%020d%s", int64(base), ext) }

// FileName is a file name taken apart.
type FileName struct {
	Base   kafka.Offset
	Ext    string // one of the extensions above
	Suffix string // one of the suffixes above, or empty
}

// String puts the name together again.
func (n FileName) String() string { return Name(n.Base, n.Ext) + n.Suffix }

// ParseName takes the name of a numbered file apart. ok is false for any other
// name, also for a metadata snapshot, which has an epoch in its name.
func ParseName(name string) (n FileName, ok bool) {
	for _, suffix := range []string{DeletedSuffix, CleanedSuffix, SwapSuffix} {
		if rest, cut := strings.CutSuffix(name, suffix); cut {
			name, n.Suffix = rest, suffix
			break
		}
	}
	n.Ext = filepath.Ext(name)
	switch n.Ext {
	case LogExt, IndexExt, TimeIndexExt, TxnIndexExt, SnapshotExt:
	default:
		return FileName{}, false
	}
	digits := strings.TrimSuffix(name, n.Ext)
	base, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || digits[0] == '+' {
		return FileName{}, false
	}
	n.Base = kafka.Offset(base)
	return n, true
}
