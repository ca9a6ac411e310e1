// Package coordinator runs the state machines of consumer groups on the
// partitions of __consumer_offsets.
//
// There is one shard a partition that this broker leads. A shard replays its
// partition ([Groups.Load]), then takes requests one at a time: the machine
// (package group) changes its state and says what to record; the shard appends
// that as one batch, answers when it is committed, and lets the machine take
// things back when the append fails. Above it is the broker, which resolves
// topics and checks permissions; below it the log of the partition.
package coordinator
