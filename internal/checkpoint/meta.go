package checkpoint

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// The keys of meta.properties.
const (
	keyVersion     = "version"
	keyNodeID      = "node.id"
	keyBrokerID    = "broker.id"
	keyClusterID   = "cluster.id"
	keyDirectoryID = "directory.id"
)

// MetaProperties says to whom a data directory belongs.
type MetaProperties struct {
	// Version is 1. Version 0 is of the ZooKeeper era (broker.id instead of
	// node.id, cluster.id optional); it is read so that it can be refused by name.
	Version int
	NodeID  kafka.BrokerID
	// ClusterID is usually 22 characters of base64, but any text is legal.
	ClusterID string
	// DirectoryID is zero when the file has none; one is then made and written back.
	DirectoryID kafka.UUID
	// Extra holds every other key, kept when the file is written again.
	Extra map[string]string
}

// ReadMeta reads a meta.properties file.
func ReadMeta(fsys vfs.FS, path string) (MetaProperties, error) {
	data, err := readFile(fsys, path)
	if err != nil {
		return MetaProperties{}, err
	}
	return decodeMeta(path, data)
}

func decodeMeta(path string, data []byte) (MetaProperties, error) {
	corrupt := func(format string, args ...any) (MetaProperties, error) {
		return MetaProperties{}, &CorruptError{Path: path, Reason: fmt.Sprintf(format, args...)}
	}
	props, err := parseProperties(data)
	if err != nil {
		return corrupt("%v", err)
	}
	take := func(key string) (string, bool) {
		value, ok := props[key]
		delete(props, key)
		return value, ok
	}
	m := MetaProperties{NodeID: kafka.NoBroker}
	text, ok := take(keyVersion)
	if !ok {
		return corrupt("%s is missing", keyVersion)
	}
	if m.Version, err = strconv.Atoi(text); err != nil || m.Version < 0 || m.Version > 1 {
		return corrupt("%s is %q, want 1", keyVersion, clip(text))
	}
	nodeKey := keyNodeID
	if m.Version == 0 {
		nodeKey = keyBrokerID
	}
	if text, ok := take(nodeKey); ok {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return corrupt("%s is %q, want a number", nodeKey, clip(text))
		}
		m.NodeID = kafka.BrokerID(id)
	} else if m.Version == 1 {
		return corrupt("%s is missing", nodeKey)
	}
	if m.ClusterID, ok = take(keyClusterID); !ok && m.Version == 1 {
		return corrupt("%s is missing", keyClusterID)
	}
	if text, ok := take(keyDirectoryID); ok {
		if m.DirectoryID, err = kafka.ParseUUID(text); err != nil {
			return corrupt("%s: %v", keyDirectoryID, err)
		}
	}
	if len(props) > 0 {
		m.Extra = props
	}
	return m, nil
}

// WriteMeta replaces a meta.properties file. now goes into the comment that
// Java's Properties.store writes.
func WriteMeta(fsys vfs.FS, path string, m MetaProperties, now time.Time) error {
	return WriteFile(fsys, path, encodeMeta(m, now))
}

func encodeMeta(m MetaProperties, now time.Time) []byte {
	props := maps.Clone(m.Extra)
	if props == nil {
		props = map[string]string{}
	}
	props[keyVersion] = strconv.Itoa(m.Version)
	if m.Version == 0 {
		if m.NodeID != kafka.NoBroker {
			props[keyBrokerID] = strconv.Itoa(int(m.NodeID))
		}
	} else {
		props[keyNodeID] = strconv.Itoa(int(m.NodeID))
	}
	if m.ClusterID != "" || m.Version > 0 {
		props[keyClusterID] = m.ClusterID
	}
	if !m.DirectoryID.IsZero() {
		props[keyDirectoryID] = m.DirectoryID.String()
	}
	out := []byte("#\n#" + now.UTC().Format("Mon Jan 02 15:04:05 MST 2006") + "\n")
	return appendProperties(out, props)
}

// SalvageMeta reads what can be read of a damaged meta.properties, line by line.
// What cannot is zero, NoBroker for the node.
func SalvageMeta(fsys vfs.FS, path string) MetaProperties {
	m := MetaProperties{NodeID: kafka.NoBroker}
	data, err := readFile(fsys, path)
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		switch key {
		case keyClusterID:
			m.ClusterID = value
		case keyNodeID:
			if id, err := strconv.ParseInt(value, 10, 32); err == nil {
				m.NodeID = kafka.BrokerID(id)
			}
		case keyDirectoryID:
			if id, err := kafka.ParseUUID(value); err == nil {
				m.DirectoryID = id
			}
		}
	}
	return m
}
