package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

const (
	barAfter  = 2 * time.Second  // a step that ends sooner shows nothing
	lineEvery = 10 * time.Second // without a terminal, and when a tenth more is done
)

// progress shows how far a step is that takes long: one bar on a terminal, lines
// elsewhere. What is printed beside it goes through Write, above the bar.
type progress struct {
	what     string // is done
	unit     string // is counted, "bytes" for sizes
	out      io.Writer
	terminal bool
	quiet    bool // neither bar nor lines
	now      func() time.Time

	mu       sync.Mutex
	ended    bool
	began    time.Time
	said     time.Time
	saidDone int64
	bars     *mpb.Progress // nil until the bar is shown
	bar      *mpb.Bar
}

// newProgress begins a step. terminal is false where lines are wanted.
func (a *app) newProgress(what, unit string, quiet bool) *progress {
	terminal := isTerminal(a.Stderr) && a.getenv("TERM") != "dumb" && a.getenv("NO_COLOR") == ""
	p := &progress{what: what, unit: unit, out: a.Stderr, terminal: terminal, quiet: quiet, now: time.Now}
	p.begin()
	return p
}

// begin starts another step, after end.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.began, p.saidDone = false, p.now(), 0
	p.said = p.began
}

// at says how much is done. total may change.
func (p *progress) at(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch {
	case p.quiet || p.ended || total <= 0:
	case !p.terminal:
		if now.Sub(p.said) >= lineEvery && (done-p.saidDone)*10 >= total {
			p.said, p.saidDone = now, done
			fmt.Fprintf(p.out, "%s: %d of %d %s, %d s\n", p.what, done, total, p.unit, int(now.Sub(p.began).Seconds()))
		}
	case p.bars == nil && now.Sub(p.began) < barAfter:
	default:
		if p.bars == nil {
			p.show(total)
		}
		p.bar.SetTotal(total, false)
		p.bar.SetCurrent(min(done, total-1)) // it is complete when the step ends
	}
}

func (p *progress) show(total int64) {
	count, rate := decor.CountersNoUnit("%d of %d "+p.unit), decor.AverageSpeed(0, "%.0f/s")
	if p.unit == "bytes" {
		count, rate = decor.CountersKibiByte("% .1f of % .1f"), decor.AverageSpeed(decor.SizeB1024(0), "% .0f")
	}
	p.bars = mpb.New(mpb.WithOutput(p.out), mpb.WithAutoRefresh())
	p.bar = p.bars.New(total, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(p.what+" "), count), mpb.AppendDecorators(rate, decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)))
	_ = p.bar.DecoratorAverageAdjust(p.began) // an error: the bar has ended already
}

// end takes the bar away.
func (p *progress) end() {
	p.mu.Lock()
	bars, bar := p.bars, p.bar
	p.bars, p.ended = nil, true
	p.mu.Unlock()
	if bars != nil {
		bar.Abort(true)
		bars.Wait()
	}
}

// Write prints beside the bar.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	bars := p.bars
	p.mu.Unlock()
	if bars != nil {
		return bars.Write(b)
	}
	return p.out.Write(b)
}
