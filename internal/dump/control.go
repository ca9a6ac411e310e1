package dump

import (
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/internal/record"
)

// controlTitle is how a control record's message is introduced.
func controlTitle(t record.ControlType) string {
	switch t {
	case record.LeaderChanged:
		return "LeaderChange: "
	case record.SnapshotStart:
		return "SnapshotHeader "
	case record.SnapshotEnd:
		return "SnapshotFooter "
	case record.KRaftVersion:
		return "KRaftVersion "
	case record.KRaftVoters:
		return "KRaftVoters "
	}
	return ""
}

func (d *logDump) printControl(r *record.Record) error {
	out := d.tool.out
	t, err := record.ParseControl(r.Key)
	if err != nil {
		return recordError(err)
	}
	switch t {
	case record.AbortMarker, record.CommitMarker:
		epoch, err := record.ParseEndTxnMarker(r.Value)
		if err != nil {
			return recordError(err)
		}
		fmt.Fprintf(out, " endTxnMarker: %v coordinatorEpoch: %d", t, epoch)
	case record.UnknownControl:
		fmt.Fprintf(out, " controlType: %v(%d)", t, int16(binary.BigEndian.Uint16(r.Key[2:])))
	default:
		if len(r.Value) < 2 {
			return &javaError{"java.nio.BufferUnderflowException", ""}
		}
		s := d.tool.opts.schemas["control"][int16(t)]
		version := min(int16(binary.BigEndian.Uint16(r.Value)), s.versions.to)
		o, _, err := s.decode(r.Value, version)
		if err != nil {
			return &javaError{"java.lang.RuntimeException", err.Error()}
		}
		fmt.Fprintf(out, " %s%s", controlTitle(t), o.appendJSON(nil))
	}
	return nil
}
