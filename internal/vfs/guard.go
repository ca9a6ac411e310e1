package vfs

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// ErrMapFault is returned by Guard when a mapped page could not be read or
// written: the disk failed under it, the file became shorter, or a store found
// no block. A faulting store is treated as a full disk, a faulting load is
// answered by reading the file instead.
var ErrMapFault = errors.New("mapped page cannot be accessed")

// Guard runs f so that a fault of a memory access inside it is an error that
// wraps ErrMapFault and not the end of the process. f must leave its data
// consistent at each access that can fault, for it is abandoned there. Other
// panics pass through. Guard may be nested.
//
// Setting the flag costs 2 ns (bench-floor); f does not escape, so a closure
// passed to Guard is not allocated.
func Guard(f func()) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = mapFault(r)
		}
	}()
	f()
	return nil
}

// mapFault turns the panic of a memory fault into an error; any other panic
// goes on. The runtime gives an address only to faults that
// debug.SetPanicOnFault turned into panics, so a nil dereference is a bug still.
func mapFault(r any) error {
	if re, ok := r.(runtime.Error); ok {
		if fault, ok := re.(interface{ Addr() uintptr }); ok {
			return fmt.Errorf("%w at address %#x", ErrMapFault, fault.Addr())
		}
	}
	panic(r)
}
