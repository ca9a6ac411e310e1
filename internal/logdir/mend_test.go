package logdir

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Faults 4.1: meta.properties of one directory is made anew from another one's,
// and refused where there is none or it seems to be somebody else's.
func TestADamagedMetaPropertiesIsMendedFromAnotherDirectory(t *testing.T) {
	own := kafka.UUID{15: 102} // of /b
	for name, tt := range map[string]struct {
		content string
		dirs    []string
		refused string
		id      kafka.UUID // of /b afterwards; zero: a new one
	}{
		"empty":                    {"", []string{"/a", "/b"}, "", kafka.UUID{}},
		"cut, its id is there":     {"directory.id=" + own.String() + "\nnode.id=1\nversi", []string{"/a", "/b"}, "", own},
		"cut inside its id":        {"node.id=1\ncluster.id=" + testCluster + "\ndirectory.id=AAAA", []string{"/b", "/a"}, "", kafka.UUID{}},
		"of another cluster":       {"cluster.id=other\nversi", []string{"/a", "/b"}, "cluster \"other\"", own},
		"of another node":          {"node.id=2\nversi", []string{"/a", "/b"}, "node 2", own},
		"the only directory there": {"", []string{"/b"}, "/b/meta.properties", own},
	} {
		t.Run(name, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/a", "/b")
			writeFile(t, disk, "/b/meta.properties", tt.content)
			m, err := Open(options(disk, tt.dirs...))
			if tt.refused != "" {
				var refused *RefusedError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.refused) || exists(disk, "/b/meta.properties.cut") {
					t.Errorf("Open = %v, want a RefusedError with %s, and nothing changed", err, tt.refused)
				}
				return
			}
			must(t, err)
			defer m.abandon()
			got, err := checkpoint.ReadMeta(disk, "/b/meta.properties")
			if err != nil || got.NodeID != 1 || got.ClusterID != testCluster || got.DirectoryID.IsZero() || !tt.id.IsZero() && got.DirectoryID != tt.id {
				t.Errorf("meta.properties = %+v, %v, want the id %v", got, err, tt.id)
			}
			if readFile(t, disk, "/b/meta.properties.cut") != tt.content {
				t.Error("what was there is gone")
			}
		})
	}
}

// Faults F5: a directory has the name of the file.
func TestADirectoryInPlaceOfMetaProperties(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	format(t, vfs.OS(), a, b)
	path := filepath.Join(b, checkpoint.MetaFile)
	must(t, vfs.OS().Remove(path), vfs.OS().Mkdir(path, 0o755))
	if _, err := Open(options(vfs.OS(), b)); !errors.As(err, new(*RefusedError)) {
		t.Errorf("Open of it alone = %v, want a RefusedError", err)
	}
	m, err := Open(options(vfs.OS(), a, b))
	must(t, err)
	defer m.abandon()
	if meta, err := checkpoint.ReadMeta(vfs.OS(), path); err != nil || meta.ClusterID != testCluster {
		t.Errorf("meta.properties = %+v, %v", meta, err)
	}
}
