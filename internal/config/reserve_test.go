package config

import "testing"

func TestReserve(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	tests := []struct {
		value string
		total int64
		want  int64
	}{
		{"auto", 10 * gib, gib * 10 / 100},
		{"auto", 4 * gib, 64 * mib},
		{"auto", 1000 * gib, gib},
		{"auto", 32 * mib, 32 * mib / 20},
		{"auto", 0, 0},
		{"0", 100 * gib, 0},
		{"0%", 100 * gib, 0},
		{"2%", 100 * gib, 2 * gib},
		{" 0.5 % ", 100 * gib, gib / 2},
		{"5GiB", 100 * gib, 5 * gib},
		{"1000", 0, 1000},
	}
	for _, tt := range tests {
		r, err := ParseReserve(tt.value)
		if got := r.Of(tt.total); err != nil || got != tt.want {
			t.Errorf("%q of %d = %d, %v, want %d", tt.value, tt.total, got, err, tt.want)
		}
	}
	for _, bad := range []string{"-1", "101%", "%", "x%", "-2%", "NaN%", "much", "5 parsecs"} {
		if r, err := ParseReserve(bad); err == nil {
			t.Errorf("ParseReserve(%q) = %+v, want an error", bad, r)
		}
	}
}
