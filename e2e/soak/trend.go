package main

import (
	"math"
	"slices"
)

// point is a value at a time in seconds.
type point struct{ x, y float64 }

// limits say how much a value may rise from the beginning to the end of what
// was watched: the larger of an amount and a share of its level.
type limits struct{ amount, share float64 }

// trend is the verdict over one series.
type trend struct {
	Level   float64 `json:"level"`        // median
	PerHour float64 `json:"slopePerHour"` // Theil-Sen: the median of all slopes
	Growth  float64 `json:"growth"`       // slope times the time watched
	Allowed float64 `json:"allowed"`
	Z       float64 `json:"z"` // Mann-Kendall; above 2.6 the rise is no chance
	Points  int     `json:"points"`
	Grows   bool    `json:"grows"`
}

const maxBins = 40

// judge says whether a series grows: by more than allowed, and steadily enough
// not to be chance. Samples near each other resemble each other, so they are
// first gathered into at most 40 bins of equal width and taken by their median.
func judge(points []point, l limits) trend {
	t := trend{Points: len(points)}
	if len(points) == 0 {
		return t
	}
	ys := make([]float64, len(points))
	for i, p := range points {
		ys[i] = p.y
	}
	t.Level = median(ys)
	t.Allowed = max(l.amount, l.share*t.Level)
	bins := binned(points)
	var slopes []float64
	rises := 0
	for i, a := range bins {
		for _, b := range bins[:i] {
			slopes = append(slopes, (a.y-b.y)/(a.x-b.x))
			switch {
			case a.y > b.y:
				rises++
			case a.y < b.y:
				rises--
			}
		}
	}
	if len(slopes) == 0 {
		return t
	}
	slope := median(slopes)
	t.PerHour = slope * 3600
	t.Growth = slope * (bins[len(bins)-1].x - bins[0].x)
	n := float64(len(bins))
	if rises != 0 {
		t.Z = (float64(rises) - math.Copysign(1, float64(rises))) / math.Sqrt(n*(n-1)*(2*n+5)/18)
	}
	t.Grows = t.Growth > t.Allowed && t.Z > 2.6
	return t
}

func binned(points []point) []point {
	points = slices.Clone(points)
	slices.SortFunc(points, func(a, b point) int {
		switch {
		case a.x < b.x:
			return -1
		case a.x > b.x:
			return 1
		}
		return 0
	})
	first, last := points[0].x, points[len(points)-1].x
	n := min(maxBins, len(points))
	width := (last - first) / float64(n)
	if width == 0 {
		return points[:1]
	}
	var out []point
	for i, k := 0, 0; k < n; k++ {
		var xs, ys []float64
		for ; i < len(points) && (k == n-1 || points[i].x < first+float64(k+1)*width); i++ {
			xs, ys = append(xs, points[i].x), append(ys, points[i].y)
		}
		if len(xs) > 0 {
			out = append(out, point{median(xs), median(ys)})
		}
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}
