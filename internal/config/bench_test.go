package config

import "testing"

func BenchmarkLoadDefaults(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Load(Sources{DataDir: "/data"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKeyTable(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		parseKeys()
	}
}
