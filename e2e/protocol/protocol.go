// Package protocol is what the test suite and a client under test say to each
// other: one JSON object a line on the driver's standard input, one answer a
// line on its standard output. A driver is a small program around one client
// library, so that the same scenarios run on every client, in any language.
package protocol

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// Request is one operation. Op says which; the other fields are its arguments.
//
//	hello           client name and version
//	create          Topic, Partitions, Configs
//	produce         Topic, Codec (none gzip snappy lz4 zstd), Acks (all 1 0), Idempotent, Records
//	consume         Topic, Partition, From (start offset time), Value, Count, TimeoutMs
//	join            Group, Topics: start a group member in this process, offsets from the start
//	poll            Count, TimeoutMs: records of the member, and its assignment now
//	commit leave    of the member
//	delete-records  Topic, Partition, Value (the new first offset)
//	configs         Topic: effective settings; alter-configs: Topic, Configs
//	groups          all group ids; describe-group: Group
type Request struct {
	Op         string            `json:"op"`
	Bootstrap  string            `json:"bootstrap"`
	Topic      string            `json:"topic,omitempty"`
	Topics     []string          `json:"topics,omitempty"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"`
	Codec      string            `json:"codec,omitempty"`
	Acks       string            `json:"acks,omitempty"`
	Idempotent bool              `json:"idempotent,omitempty"`
	Records    []Record          `json:"records,omitempty"`
	From       string            `json:"from,omitempty"`
	Value      int64             `json:"value"`
	Count      int               `json:"count,omitempty"`
	TimeoutMs  int               `json:"timeoutMs,omitempty"`
	Group      string            `json:"group,omitempty"`
}

// Record is one record; Key and Value are base64 in JSON, null when absent.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // milliseconds; 0 = the client's clock
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers,omitempty"`
}

// Header is one header of a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Response is the answer. Error is set when the operation failed, Unsupported
// when the client library has no such operation.
type Response struct {
	Error       string            `json:"error,omitempty"`
	Unsupported string            `json:"unsupported,omitempty"`
	Client      string            `json:"client,omitempty"`
	Version     string            `json:"version,omitempty"`
	Records     []Record          `json:"records,omitempty"`
	Assignment  []Assigned        `json:"assignment,omitempty"`
	Configs     map[string]string `json:"configs,omitempty"`
	Groups      []string          `json:"groups,omitempty"`
	State       string            `json:"state,omitempty"`
	Members     int               `json:"members,omitempty"`
}

// Assigned is one partition that the group member holds.
type Assigned struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// ErrUnsupported is returned by a handler for what its library cannot do.
type ErrUnsupported string

func (e ErrUnsupported) Error() string { return string(e) }

// Serve answers requests from standard input until it ends.
func Serve(handle func(Request) (Response, error)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	dec := json.NewDecoder(in)
	for {
		var req Request
		if err := dec.Decode(&req); err != nil {
			return
		}
		resp, err := handle(req)
		if u, ok := err.(ErrUnsupported); ok {
			resp = Response{Unsupported: string(u)}
		} else if err != nil {
			resp = Response{Error: err.Error()}
		}
		if err := out.Encode(resp); err != nil {
			fmt.Fprintln(os.Stderr, "write answer:", err)
			return
		}
	}
}
