//go:build race

package cleaner

// thorough is how much less the long tests do under the race detector, which has
// nothing to find in one goroutine.
const thorough = 7
