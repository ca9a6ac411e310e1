// Package e2e holds the tests that need more than Go: foreign clients and
// Apache Kafka itself against the real binary. See README.md.
package e2e
