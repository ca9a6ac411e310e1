//go:build !race

package commitlog

const racing = false
