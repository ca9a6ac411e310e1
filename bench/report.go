package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/bench/floor"
)

// figure is one measured quantity of the broker, with the floor's of the same rounds beside it.
type figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Varve  []float64 `json:"varve"`
	Floor  []float64 `json:"floor,omitempty"`
	Target float64   `json:"target,omitempty"` // most that varve / floor may be
	Limit  float64   `json:"limit,omitempty"`  // most that varve may be, in Unit

	// Latencies in µs and requests per second of the same rounds, where the case has them.
	P50      []float64 `json:"p50,omitempty"`
	P99      []float64 `json:"p99,omitempty"`
	FloorP50 []float64 `json:"floor_p50,omitempty"`
	Rate     []float64 `json:"rate,omitempty"`

	// Apache Kafka in the same run, and the floor beside it.
	Kafka      []float64 `json:"kafka,omitempty"`
	KafkaFloor []float64 `json:"kafka_floor,omitempty"`
	KafkaP50   []float64 `json:"kafka_p50,omitempty"`
	KafkaP99   []float64 `json:"kafka_p99,omitempty"`

	// What varve needs of what Apache Kafka needs, and its bootstrap 95 % interval.
	KafkaRatio float64 `json:"kafka_ratio,omitempty"`
	KafkaLow   float64 `json:"kafka_ratio_low,omitempty"`
	KafkaTop   float64 `json:"kafka_ratio_top,omitempty"`

	// The quotient of the medians and its bootstrap 95 % interval.
	Ratio    float64 `json:"ratio,omitempty"`
	RatioLow float64 `json:"ratio_low,omitempty"`
	RatioTop float64 `json:"ratio_top,omitempty"`
}

// report prints figures as they come and writes them all at the end.
type report struct {
	env     *floor.Env
	figures []figure
}

const row = "%-46s %-22s %26s %26s %20s %26s %20s  %s\n"

func (r *report) header() {
	fmt.Printf(row, "case", "", "varve", "floor", "ratio", "Apache Kafka", "Kafka / varve", "target")
}

func (r *report) add(f figure) {
	if len(f.Floor) > 0 {
		f.Ratio = floor.Median(f.Varve) / floor.Median(f.Floor)
		f.RatioLow, f.RatioTop = bootstrap(f.Varve, f.Floor)
	}
	if len(f.Kafka) > 0 {
		f.KafkaRatio = floor.Median(f.Varve) / floor.Median(f.Kafka)
		f.KafkaLow, f.KafkaTop = bootstrap(f.Varve, f.Kafka)
	}
	r.figures = append(r.figures, f)
	fmt.Printf(row, f.Name, f.Unit, spread(f.Varve), spread(f.Floor), f.ratio(), spread(f.Kafka), f.times(), f.verdict())
	if len(f.P50) > 0 {
		fmt.Printf(row, "  p50", "µs", spread(f.P50), spread(f.FloorP50), fmt.Sprintf("%.2f", floor.Median(f.P50)/floor.Median(f.FloorP50)), spread(f.KafkaP50), quotient(f.KafkaP50, f.P50), "")
		fmt.Printf(row, "  p99", "µs", spread(f.P99), "", "", spread(f.KafkaP99), quotient(f.KafkaP99, f.P99), "")
	}
}

// spread is a median with its range.
func spread(v []float64) string {
	if len(v) == 0 {
		return ""
	}
	if len(v) == 1 {
		return floor.Number(v[0])
	}
	lo, hi := floor.Extremes(v)
	return fmt.Sprintf("%s [%s–%s]", floor.Number(floor.Median(v)), floor.Number(lo), floor.Number(hi))
}

func (f *figure) ratio() string {
	if f.Ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f [%.2f–%.2f]", f.Ratio, f.RatioLow, f.RatioTop)
}

// times is how many times more Apache Kafka needs.
func (f *figure) times() string {
	if f.KafkaRatio == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f [%.1f–%.1f]", 1/f.KafkaRatio, 1/f.KafkaTop, 1/f.KafkaLow)
}

func quotient(a, b []float64) string {
	if len(a) == 0 || len(b) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", floor.Median(a)/floor.Median(b))
}

func (f *figure) verdict() string {
	value, most, what := f.Ratio, f.Target, "× floor"
	if f.Limit > 0 {
		value, most, what = floor.Median(f.Varve), f.Limit, f.Unit
	}
	if most == 0 {
		return ""
	}
	says := "met"
	if value > most {
		says = "MISSED"
	}
	return fmt.Sprintf("≤ %s %s: %s", strings.TrimSuffix(fmt.Sprintf("%.1f", most), ".0"), what, says)
}

// bootstrap draws rounds with replacement and returns the 2.5 and 97.5 % points of the quotient of medians.
func bootstrap(a, b []float64) (lo, hi float64) {
	r := rand.New(rand.NewPCG(1, 2))
	draws := make([]float64, 2000)
	x, y := make([]float64, len(a)), make([]float64, len(b))
	for i := range draws {
		for k := range x {
			x[k] = a[r.IntN(len(a))]
		}
		for k := range y {
			y[k] = b[r.IntN(len(b))]
		}
		draws[i] = floor.Median(x) / floor.Median(y)
	}
	slices.Sort(draws)
	return floor.Quantile(draws, 0.025), floor.Quantile(draws, 0.975)
}

func (r *report) write(name string) error {
	doc := struct {
		Facts   map[string]string `json:"facts"`
		Figures []figure          `json:"figures"`
	}{r.env.Facts, r.figures}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	fmt.Println("\nwritten to", name)
	return os.WriteFile(name, append(b, '\n'), 0o644)
}
