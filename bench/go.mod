module github.com/varvelog/varve/bench

go 1.26.0

require (
	github.com/twmb/franz-go/pkg/kmsg v1.15.1
	golang.org/x/sys v0.50.0
)
