//go:build race

package commitlog

// racing: the race detector makes pools forget at random, so that what comes
// out of one is allocated at times.
const racing = true
