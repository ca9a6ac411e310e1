// Package lint holds the repository's own rules as tests: which package may
// import which, how long a file may be, that every package says what it is
// for, that the reading paths in ARCHITECTURE.md point at functions that
// exist, and which words do not belong in the tree. It has no code of its own.
package lint
