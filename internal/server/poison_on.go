//go:build invariants

package server

// poison overwrites a buffer that was given back, so that a use after it shows.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
