package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Reserve is how much of a disk producers must leave free: a size, a share, or
// neither for the default, which depends on the size of the disk.
type Reserve struct {
	bytes int64
	share float64 // of the disk; 0.02 is 2%
	set   bool
}

// The default reserve: room for retention, compaction, checkpoints and the
// metadata log, and small beside any disk.
const (
	reserveShare = 0.01
	reserveLeast = 64 << 20
	reserveMost  = 1 << 30
	reserveCap   = 20 // part of a small disk that it must not exceed
)

// ParseReserve reads varve.disk.reserve.
func ParseReserve(s string) (Reserve, error) {
	t := trimJava(s)
	if t == "" || strings.EqualFold(t, "auto") {
		return Reserve{}, nil
	}
	if number, ok := strings.CutSuffix(t, "%"); ok {
		percent, err := strconv.ParseFloat(trimJava(number), 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return Reserve{}, fmt.Errorf("%q is not a share from 0%% to 100%%", s)
		}
		return Reserve{share: percent / 100, set: true}, nil
	}
	bytes, err := ParseSize(t)
	return Reserve{bytes: bytes, set: true}, err
}

// Of is the reserve of a disk of total bytes; 0 means none is kept.
func (r Reserve) Of(total int64) int64 {
	switch {
	case !r.set:
		return min(max(int64(reserveShare*float64(total)), reserveLeast), reserveMost, total/reserveCap)
	case r.share > 0:
		return int64(r.share * float64(total))
	}
	return r.bytes
}
