package segment

import (
	"errors"

	"github.com/varvelog/varve/internal/vfs"
)

// BuildIndexesBeside has the Recover that follows make the offset and the time
// index in files beside the old ones. It is for a segment below the recovery
// point: another start would not check it, and must not find half of an index. On
// a full disk the old files are used.
func (s *Segment) BuildIndexesBeside() error {
	err := s.offsets.BuildBeside()
	if err == nil {
		if err = s.times.BuildBeside(); err != nil {
			err = errors.Join(err, s.offsets.GiveUpBeside())
		}
	}
	if vfs.IsFull(err) {
		return nil
	}
	return err
}

// PutIndexesInPlace makes the segment durable, and then gives the indexes their names.
func (s *Segment) PutIndexesInPlace() error {
	if err := s.Flush(); err != nil {
		return err
	}
	if err := errors.Join(s.offsets.PutInPlace(), s.times.PutInPlace()); err != nil {
		return err
	}
	return s.fs.SyncDir(s.directory())
}

// GiveUpIndexesBeside removes what BuildIndexesBeside began and closes the
// segment, which has to be opened again: with the old indexes.
func (s *Segment) GiveUpIndexesBeside() error {
	return errors.Join(s.offsets.GiveUpBeside(), s.times.GiveUpBeside(), s.Abandon())
}
