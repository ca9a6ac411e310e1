package golden

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

func TestEveryStageUnpacksToTheFilesOfItsDescription(t *testing.T) {
	for _, name := range Names(t) {
		c := Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			t.Run(name+"/"+s.Name, func(t *testing.T) { checkFiles(t, s) })
		}
	}
}

func checkFiles(t *testing.T, s *Stage) {
	dir := s.Unpack(t)
	found := 0
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != len(s.Files) {
		t.Errorf("unpacked %d files, want %d", found, len(s.Files))
	}
	for _, f := range s.Files {
		if f.Size > 1<<20 {
			continue // preallocated indexes: their entries are compared elsewhere
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Path))
		if err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.Sum256(data)
		if int64(len(data)) != f.Size || hex.EncodeToString(sum[:]) != f.SHA256 {
			t.Errorf("%s: %d bytes, sum %x; want %d, %s", f.Path, len(data), sum, f.Size, f.SHA256)
		}
	}
}
