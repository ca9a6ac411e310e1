// Package invariant states what only a bug can break. A violation at a place
// where bytes on disk are at stake ends the process: going on could write
// something wrong, while stopping loses nothing that recovery cannot bring back.
package invariant

import "fmt"

// Violated panics always. Use it where continuing could damage acknowledged data.
func Violated(format string, args ...any) {
	panic("invariant violated: " + fmt.Sprintf(format, args...))
}
