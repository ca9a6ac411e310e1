// Package metadata is what a KRaft metadata log says: the record types with
// their encoding, the image that replaying them gives, and the order in which
// an image is written to a snapshot.
//
// The package is pure: it knows no file, lock or clock. Before it on the path
// comes quorum, which reads and writes the log; after it come controller, which
// decides which records to write, and every reader of an Image.
package metadata
