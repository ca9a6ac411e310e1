//go:build !race

package cleaner

// thorough is 1: every file operation, every seed.
const thorough = 1
