package vfs

// ColdReader is a File that can be read without pushing others' pages out of the
// page cache: ReadCold is ReadAt, and drops again what it had to read from the disk.
// A disk that wraps another one passes it on: embedding File does not.
type ColdReader interface {
	ReadCold(p []byte, off int64) (int, error)
}

// ReadCold reads from f without leaving more in the page cache than there was,
// where f can do that.
func ReadCold(f File, p []byte, off int64) (int, error) {
	if c, ok := f.(ColdReader); ok {
		return c.ReadCold(p, off)
	}
	return f.ReadAt(p, off)
}
