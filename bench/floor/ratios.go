package floor

import "fmt"

// printRatios prints what carries over from one machine to another better than any single figure.
func (e *Env) PrintRatios() {
	fmt.Println("\nratios")
	for _, r := range []struct{ what, above, below string }{
		{"send 1 MiB, CPU: pread+write / sendfile", "send/same 1MiB pread+write cpu", "send/same 1MiB sendfile cpu"},
		{"send 64 KiB, CPU: pread+write / sendfile", "send/same 64KiB pread+write cpu", "send/same 64KiB sendfile cpu"},
		{"send 16 KiB, CPU: pread+write / sendfile", "send/same 16KiB pread+write cpu", "send/same 16KiB sendfile cpu"},
		{"send 4 KiB, CPU: pread+write / sendfile", "send/same 4KiB pread+write cpu", "send/same 4KiB sendfile cpu"},
		{"send 4 KiB, CPU: header apart / MSG_MORE", "send/same 4KiB header apart cpu", "send/same 4KiB sendfile cpu"},
		{"send 16 KiB, CPU: header apart / MSG_MORE", "send/same 16KiB header apart cpu", "send/same 16KiB sendfile cpu"},
		{"send 1 MiB, CPU: TLS / plain sendfile", "tls/cross 1MiB pread+write cpu", "send/cross 1MiB sendfile cpu"},
		{"append 16 KiB, CPU: plain / allocated ahead", "append/pwrite 16KiB plain cost", "append/pwrite 16KiB keepsize cost"},
		{"append 1 MiB, CPU: plain / allocated ahead", "append/pwrite 1MiB plain cost", "append/pwrite 1MiB keepsize cost"},
		{"append 16 KiB, CPU: plain / recycled", "append/pwrite 16KiB plain cost", "append/pwrite 16KiB recycled cost"},
		{"append 1 KiB, CPU: one by one / 64 in one writev", "append/pwrite 1KiB plain cost", "append/writev64 1KiB plain cost"},
		{"append 16 KiB, CPU: one by one / 64 in one writev", "append/pwrite 16KiB plain cost", "append/writev64 16KiB plain cost"},
		{"produce 16 KiB, CPU: receive+crc+append / receive", "produce/same 16KiB receive+crc+append cost", "produce/same 16KiB receive cost"},
		{"durable 64 KiB, p50: plain / recycled", "durable/64KiB per sync plain p50", "durable/64KiB per sync recycled p50"},
		{"rtt, p50: free / same", "rtt/free 170B append p50", "rtt/same 170B append p50"},
		{"rtt free, CPU: queue / in line", "rtt/free 170B echo by queue cost", "rtt/free 170B echo cost"},
		{"rtt same, CPU: append / echo", "rtt/same 170B append cost", "rtt/same 170B echo cost"},
		{"rtt same, CPU: append, announced / raw calls", "rtt/same 170B append cost", "rtt/same, raw calls 170B append cost"},
		{"wake same, CPU per delivery: announced / raw calls", "wake/same 1KiB 1 waiting cost", "wake/same, raw calls 1KiB 1 waiting cost"},
		{"wake same, CPU per delivery: 1 waiting / 100 waiting", "wake/same 1KiB 1 waiting cost", "wake/same 1KiB 100 waiting cost"},
		{"lookup warm uniform: plain / fence", "index/warm uniform plain", "index/warm uniform fence"},
		{"lookup page-cold uniform: plain, default map / fence, MADV_RANDOM",
			"index/page-cold uniform plain, default time", "index/page-cold uniform fence, random time"},
		{"conns: 64 KiB buffer / no buffer", "conns/64 KiB buffer", "conns/no buffer"},
	} {
		a, b := e.Value(r.above), e.Value(r.below)
		if a > 0 && b > 0 {
			fmt.Printf("  %-66s %.2f\n", r.what, a/b)
		}
	}
}
