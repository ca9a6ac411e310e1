package index

import (
	"errors"
	"fmt"
	"strings"
)

// BuildBeside begins the index anew in a file beside its own, at its full length.
// The old file stays as it is until PutInPlace, so that a crash in between never
// leaves a part of the new one under a name that is believed. For the owner of an
// index that nobody else uses yet.
func (x *mapped) BuildBeside() error {
	if err := x.Cool(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.cur.Load() != nil {
		return fmt.Errorf("index %s: in use", x.path)
	}
	final := x.path
	x.path += TemporarySuffix
	err := ignoreMissing(x.fs.Remove(x.path))
	if err == nil {
		err = x.createLocked()
	}
	if err != nil {
		x.path = final
		return err
	}
	x.kept, x.keptCount, x.reservedTo = nil, 0, 0
	x.flushed.Store(0)
	return nil
}

// PutInPlace gives the file that BuildBeside began its final name. It has to be
// flushed before; the caller makes the name durable. After an error the index goes
// on under the other name, and the next load makes it anew.
func (x *mapped) PutInPlace() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	final, beside := strings.CutSuffix(x.path, TemporarySuffix)
	if !beside {
		return nil
	}
	if err := x.fs.Rename(x.path, final); err != nil {
		return err
	}
	x.path = final
	return nil
}

// GiveUpBeside takes BuildBeside back: the index is that of the old file again.
func (x *mapped) GiveUpBeside() error {
	err := x.Cool()
	x.mu.Lock()
	defer x.mu.Unlock()
	final, beside := strings.CutSuffix(x.path, TemporarySuffix)
	if !beside {
		return err
	}
	err = errors.Join(err, ignoreMissing(x.fs.Remove(x.path)))
	x.path, x.kept, x.keptCount, x.opened = final, nil, 0, false
	x.lengthOwed.Store(false)
	x.blank.Store(false)
	return err
}
