// Package group is the consumer-group state machine: members, generations,
// assignments and committed offsets of all the groups of one partition of
// __consumer_offsets.
//
// It is pure. A [Machine] takes a request and the time and returns [Effects]:
// records to append, answers to send, timers to set. It knows no log, no clock
// and no socket, so a rebalance is a script that runs in microseconds.
// Package coordinator runs it on a log: a request's effects come in, records
// go to the partition, and when they are committed, or could not be appended,
// the machine's continuation says what to answer.
//
// The rules are those of Apache Kafka's GroupMetadataManager, ClassicGroup and
// OffsetMetadataManager: the classic protocol with static members (KIP-345),
// required member ids (KIP-394), skipped assignment (KIP-814) and offset expiry
// (KIP-211). Groups of the newer protocols (KIP-848, share and streams groups)
// are known by name, members and epochs so that they are listed, kept and never
// mistaken for classic groups; their heartbeats are not served here.
package group
