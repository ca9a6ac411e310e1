package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// outputFlag adds -o to a command that prints data.
func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", "text", "`FORM` of the output: text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	previous := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if a.output != "text" && a.output != "json" {
			return usageError("-o %s: the forms are text and json", a.output)
		}
		if previous != nil {
			return previous(cmd, args)
		}
		return nil
	}
}

// print writes v as one JSON document under -o json, and else calls text.
func (a *app) print(v any, text func()) error {
	a.printed = true
	if a.output != "json" {
		text()
		return nil
	}
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table is rows of cells under a header, two blanks between columns.
type table struct {
	header []string
	rows   [][]string
	right  map[int]bool // columns of numbers
}

func newTable(header ...string) *table { return &table{header: header, right: map[int]bool{}} }

// numbers aligns columns at their right ends.
func (t *table) numbers(columns ...int) *table {
	for _, c := range columns {
		t.right[c] = true
	}
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	width := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range append([][]string{t.header}, t.rows...) {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				b.WriteString("  ")
			}
			if t.right[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// dash is what a table shows for an absent value.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// count renders a number with its noun: "1 record", "3 records".
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// timestamp renders milliseconds since 1970 as RFC 3339 in UTC.
func timestamp(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// bigInt is a number that JSON readers may not hold exactly: beyond 2^53 it is
// written as a string.
type bigInt int64

// MarshalJSON implements json.Marshaler.
func (n bigInt) MarshalJSON() ([]byte, error) {
	if n > 1<<53 || n < -(1<<53) {
		return []byte(strconv.Quote(strconv.FormatInt(int64(n), 10))), nil
	}
	return []byte(strconv.FormatInt(int64(n), 10)), nil
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("unexpected argument %q", args[0])
	}
	return nil
}
