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
		// Kafka reads and writes all of them in version 0, whatever their own
		// version field says (ControlRecordUtils); that selects what is shown.
		s := d.tool.opts.schemas["control"][int16(t)]
		o, _, err := s.decode(r.Value, 0)
		if err != nil {
			return &javaError{"java.lang.RuntimeException", err.Error()}
		}
		if version, _ := o.get("version").(int64); t == record.LeaderChanged && version >= 1 {
			showDirectories(o)
		}
		fmt.Fprintf(out, " %s%s", controlTitle(t), o.appendJSON(nil))
	}
	return nil
}

// showDirectories shows the directory ids of voters, which are not stored.
func showDirectories(o object) {
	for i := range o {
		voters, _ := o[i].value.([]any)
		for _, v := range voters {
			v := v.(object)
			for j := range v {
				v[j].shown = true
			}
		}
	}
}
