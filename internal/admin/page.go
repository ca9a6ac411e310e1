package admin

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
)

// page writes the Prometheus text format, family by family. Labels are given
// as name, value, name, value.
type page struct {
	w      *bufio.Writer
	num    [32]byte
	family string
	open   bool // OpenMetrics instead of the Prometheus text format
}

func newPage(w io.Writer) *page { return &page{w: bufio.NewWriterSize(w, 64<<10)} }

// begin starts a family; its type and help are those of the catalogue.
func (p *page) begin(name string) {
	m := lookup(name)
	p.family = name
	family := name
	if p.open && m.Type == "counter" { // there the family lacks the suffix of its samples
		family = strings.TrimSuffix(name, "_total")
	}
	p.w.WriteString("# HELP ")
	p.w.WriteString(family)
	p.w.WriteByte(' ')
	p.w.WriteString(m.Help)
	p.w.WriteString("\n# TYPE ")
	p.w.WriteString(family)
	p.w.WriteByte(' ')
	p.w.WriteString(m.Type)
	p.w.WriteByte('\n')
}

// sample writes one sample of the family that was begun.
func (p *page) sample(v float64, labels ...string) {
	p.name("", labels)
	p.value(v)
}

// part writes one sample of a histogram; the suffix says which.
func (p *page) part(suffix string, v float64, labels ...string) {
	p.name(suffix, labels)
	p.value(v)
}

// count writes a sample that is a whole number, exactly.
func (p *page) count(v int64, labels ...string) {
	p.name("", labels)
	p.w.WriteByte(' ')
	p.w.Write(strconv.AppendInt(p.num[:0], v, 10))
	p.w.WriteByte('\n')
}

// whole is a family of one whole number without labels.
func (p *page) whole(name string, v int64) {
	p.begin(name)
	p.count(v)
}

func (p *page) name(suffix string, labels []string) {
	p.w.WriteString(p.family)
	p.w.WriteString(suffix)
	for i := 0; i+1 < len(labels); i += 2 {
		if i == 0 {
			p.w.WriteByte('{')
		} else {
			p.w.WriteByte(',')
		}
		p.w.WriteString(labels[i])
		p.w.WriteString(`="`)
		p.escaped(labels[i+1])
		p.w.WriteByte('"')
	}
	if len(labels) > 0 {
		p.w.WriteByte('}')
	}
}

// escaped writes a label's value.
func (p *page) escaped(s string) {
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '"':
			p.w.WriteByte('\\')
			p.w.WriteByte(c)
		case '\n':
			p.w.WriteString(`\n`)
		default:
			p.w.WriteByte(c)
		}
	}
}

func (p *page) value(v float64) {
	p.w.WriteByte(' ')
	switch {
	case math.IsInf(v, 1):
		p.w.WriteString("+Inf")
	case math.IsInf(v, -1):
		p.w.WriteString("-Inf")
	default:
		p.w.Write(strconv.AppendFloat(p.num[:0], v, 'g', -1, 64))
	}
	p.w.WriteByte('\n')
}

// flush hands everything to the writer below.
func (p *page) flush() error { return p.w.Flush() }
