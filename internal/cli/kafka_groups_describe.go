package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// describeGroups is kafka-consumer-groups --describe.
func (r *kafkaRun) describeGroups(ctx context.Context, c *client) error {
	names, err := r.wantedGroups(ctx, c)
	if err != nil || len(names) == 0 {
		return err
	}
	lags, err := c.admin.Lag(ctx, names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		l := lags[name]
		if groupProblem(l) != nil {
			r.groupError("Consumer group '" + name + "' does not exist.")
			continue
		}
		switch l.State {
		case "Empty":
			fmt.Fprintf(r.Stderr, "\nConsumer group '%s' has no active members.\n", name)
		case "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling":
			fmt.Fprintf(r.Stderr, "\nWarning: Consumer group '%s' is rebalancing.\n", name)
		}
		switch {
		case r.opts.has("members"):
			r.printMembers(l)
		case r.opts.has("state"):
			r.printState(l)
		default:
			r.printOffsets(l)
		}
	}
	return nil
}

func (r *kafkaRun) printOffsets(l kadm.DescribedGroupLag) {
	verbose := r.opts.has("verbose")
	t := &paddedTable{widths: []int{15, 15, 10, 15, 15, 15, 15, 15, 0}}
	header := []string{"GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"}
	if verbose {
		t.widths = append([]int{15, 15, 10, 15}, t.widths[3:]...)
		header = append([]string{"GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH"}, header[3:]...)
	}
	t.add(header...)
	d := detailOf(l)
	for _, o := range d.Offsets {
		row := []string{l.Group, o.Topic, strconv.Itoa(int(o.Partition)), offsetText(o.Committed), offsetText(o.End), offsetText(o.Lag), text(o.Member), text(o.Host), text(o.Client)}
		if verbose {
			epoch := "-"
			if p, ok := l.Lag.Lookup(o.Topic, o.Partition); ok && p.Commit.LeaderEpoch >= 0 {
				epoch = strconv.Itoa(int(p.Commit.LeaderEpoch))
			}
			row = append(row[:3:3], append([]string{epoch}, row[3:]...)...)
		}
		t.add(row...)
	}
	if len(d.Offsets) == 0 {
		return
	}
	t.write(r.Stdout, true)
}

func (r *kafkaRun) printMembers(l kadm.DescribedGroupLag) {
	if len(l.Members) == 0 {
		return
	}
	static := false
	for _, m := range l.Members {
		static = static || m.InstanceID != nil
	}
	header, widths := []string{"GROUP", "CONSUMER-ID"}, []int{15, 15}
	if static {
		header, widths = append(header, "GROUP-INSTANCE-ID"), append(widths, 17)
	}
	header, widths = append(header, "HOST", "CLIENT-ID", "#PARTITIONS"), append(widths, 15, 15, 15)
	if r.opts.has("verbose") {
		header, widths = append(header, "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"), append(widths, 15, 20, 15, 20)
	}
	t := &paddedTable{widths: widths}
	t.add(header...)
	for _, m := range detailOf(l).Members {
		row := []string{l.Group, m.ID}
		if static {
			row = append(row, text(m.Instance))
		}
		row = append(row, dash(m.Host), dash(m.Client), strconv.Itoa(m.assigned))
		if r.opts.has("verbose") {
			row = append(row, "-", javaAssignment(m), "-", "-")
		}
		t.add(row...)
	}
	t.write(r.Stdout, true)
}

// javaAssignment renders orders:0,1,2 with commas between topics too.
func javaAssignment(m memberRow) string {
	var words []string
	for _, topic := range sortedKeys(m.Partitions) {
		var parts []string
		for _, p := range m.Partitions[topic] {
			parts = append(parts, fmt.Sprint(p))
		}
		sort.Strings(parts)
		words = append(words, topic+":"+strings.Join(parts, ","))
	}
	return dash(strings.Join(words, ";"))
}

func (r *kafkaRun) printState(l kadm.DescribedGroupLag) {
	coordinator := net.JoinHostPort(l.Coordinator.Host, strconv.Itoa(int(l.Coordinator.Port))) + "  (" + strconv.Itoa(int(l.Coordinator.NodeID)) + ")"
	header, widths := []string{"GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"}, []int{15, 25, 20, 20}
	row := []string{l.Group, coordinator, dash(l.Protocol), l.State}
	if r.opts.has("verbose") {
		header, widths = append(header, "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"), append(widths, 15, 25)
		row = append(row, "-", "-")
	}
	t := &paddedTable{widths: append(widths, 0)}
	t.add(append(header, "#MEMBERS")...)
	t.add(append(row, strconv.Itoa(len(l.Members)))...)
	t.write(r.Stdout, true)
}

// paddedTable is a table as Kafka's tools format it: columns of least widths,
// one blank between them.
type paddedTable struct {
	widths []int
	rows   [][]string
}

func (t *paddedTable) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table, after an empty line when gap is set.
func (t *paddedTable) write(w io.Writer, gap bool) {
	width := append([]int(nil), t.widths...)
	for _, row := range t.rows {
		for i, cell := range row {
			if width[i] > 0 {
				width[i] = max(width[i], len(cell))
			}
		}
	}
	if gap {
		fmt.Fprintln(w)
	}
	for _, row := range t.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = fmt.Sprintf("%-*s", width[i], cell)
		}
		fmt.Fprintln(w, strings.Join(cells, " "))
	}
}
