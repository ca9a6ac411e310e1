//go:build race

package sim

// racing: the race detector sees that a crash looks at what another log stores
// through a map at that moment, as a power cut does.
const racing = true
