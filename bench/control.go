package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// client sends one control request at a time and waits for its answer.
type client struct{ c net.Conn }

func connect(port int) (*client, error) {
	c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &client{c}, c.SetDeadline(time.Now().Add(10 * time.Minute))
}

func (k *client) close() { _ = k.c.Close() }

// ask sends req at its version and reads the answer into the response of its kind.
func (k *client) ask(req kmsg.Request) (kmsg.Response, error) {
	if _, err := k.c.Write(formatter.AppendRequest(nil, req, 1)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(k.c, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(k.c, body); err != nil {
		return nil, err
	}
	return parse(req, body)
}

// parse decodes an answer without its size.
func parse(req kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	skip := 4 // correlation id
	if resp.IsFlexible() && req.Key() != 18 {
		skip++ // no tagged fields
	}
	if len(body) < skip {
		return nil, io.ErrUnexpectedEOF
	}
	return resp, resp.ReadFrom(body[skip:])
}

func failed(code int16, what string) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: error code %d", what, code)
}

// createTopic makes a topic and returns its id.
func (k *client) createTopic(name string, partitions int32) (id [16]byte, err error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = 30_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, t)
	resp, err := k.ask(req)
	if err != nil {
		return id, err
	}
	made := resp.(*kmsg.CreateTopicsResponse).Topics[0]
	return made.TopicID, failed(made.ErrorCode, "create "+name)
}

// metadata asks for a topic, which the broker makes if it is not there.
func (k *client) metadata(name string) (id [16]byte, code int16, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	req.AllowAutoTopicCreation = true
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &name
	req.Topics = append(req.Topics, t)
	resp, err := k.ask(req)
	if err != nil {
		return id, 0, err
	}
	got := resp.(*kmsg.MetadataResponse).Topics[0]
	if got.ErrorCode == 0 && len(got.Partitions) > 0 {
		return got.TopicID, got.Partitions[0].ErrorCode, nil
	}
	return got.TopicID, got.ErrorCode, nil
}

func (k *client) apiVersions() error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(0)
	resp, err := k.ask(req)
	if err != nil {
		return err
	}
	return failed(resp.(*kmsg.ApiVersionsResponse).ErrorCode, "ApiVersions")
}

// produce sends one batch and waits until it is acknowledged.
func (k *client) produce(topic [16]byte, partition int32, records []byte, acks int16) error {
	if _, err := k.c.Write(produceFrame(topic, partition, records, acks)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(k.c, size[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(k.c, body); err != nil {
		return err
	}
	return checkProduce(body)
}

func checkProduce(body []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(produceVersion)
	resp, err := parse(req, body)
	if err != nil {
		return err
	}
	p := resp.(*kmsg.ProduceResponse).Topics
	if len(p) != 1 || len(p[0].Partitions) != 1 {
		return errors.New("produce: no partition in the answer")
	}
	return failed(p[0].Partitions[0].ErrorCode, "produce")
}

// endOffset is the offset after the last record of a partition.
func (k *client) endOffset(topic string, partition int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(7)
	req.ReplicaID = -1
	t, p := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -1, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := k.ask(req)
	if err != nil {
		return 0, err
	}
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return got.Offset, failed(got.ErrorCode, "list offsets of "+topic)
}

// fetchBytes is how many record bytes a fetch at an offset returns.
func (k *client) fetchBytes(topic [16]byte, offset int64, maxBytes int32) (int, error) {
	b, at := fetchFrame(topic, 0, maxBytes, 1, 1000)
	binary.BigEndian.PutUint64(b[at:], uint64(offset))
	if _, err := k.c.Write(b); err != nil {
		return 0, err
	}
	var size [4]byte
	if _, err := io.ReadFull(k.c, size[:]); err != nil {
		return 0, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(k.c, body); err != nil {
		return 0, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(fetchVersion)
	resp, err := parse(req, body)
	if err != nil {
		return 0, err
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	return len(got.RecordBatches), failed(got.ErrorCode, "fetch")
}
