package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside marks a process that already runs in its own network.
const inside = "VARVE_BENCH_NETWORK"

// congestion controls that do not pace traffic on loopback, best first. With a pacing default (bbr), large
// responses are three times slower for broker and floor alike, and the figures say nothing.
var unpaced = []string{"cubic", "reno"}

// inPrivateNetwork runs this program again in a network namespace of its own, where it may choose the
// congestion control and no other traffic passes. ended is true in the outer process, once the inner one
// is over; without the privilege the program goes on where it is, and the facts say what it got.
func inPrivateNetwork() (ended bool, err error) {
	if os.Getenv(inside) != "" {
		raiseLoopback()
		setCongestionControl()
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, nil
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return false, nil
	}
	return true, cmd.Wait()
}

// raiseLoopback brings the interface lo of a new network up; a failure shows at the first connection.
func raiseLoopback() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	_ = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func setCongestionControl() {
	for _, cc := range unpaced {
		if os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte(cc), 0o644) == nil {
			return
		}
	}
}
