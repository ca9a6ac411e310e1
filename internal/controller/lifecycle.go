package controller

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// recordsPerBatch bounds what one batch of partition changes holds
// (QuorumController.MAX_RECORDS_PER_BATCH).
const recordsPerBatch = 10_000

// Unclean is the previous broker epoch of a node whose last stop was not clean
// in every directory.
const Unclean int64 = -1

// Bootstrap writes the first transaction of a new log: the feature levels that
// the format tool left and, with eligible leader replicas, the cluster's
// min.insync.replicas, which that feature needs as a dynamic value. In a log
// that has records it does nothing.
func (c *Controller) Bootstrap() error {
	first, needed := c.q.Bootstrap()
	if !needed {
		return nil
	}
	name := "Bootstrap records"
	records := []metadata.Record{&metadata.BeginTransactionRecord{Name: &name}}
	records = append(records, first...)
	for _, r := range first {
		if f, ok := r.(*metadata.FeatureLevelRecord); ok && f.Name == metadata.ELRVersion && f.Level > 0 {
			value, _ := c.cfg.Broker().Value(minInsyncReplicas)
			records = append(records, &metadata.ConfigRecord{ResourceType: metadata.ResourceBroker, Name: minInsyncReplicas, Value: &value})
		}
	}
	records = append(records, &metadata.EndTransactionRecord{})
	_, err := c.q.Append(records)
	return err
}

// Register writes the node's registrations as a start does: the controller,
// then, when the last run was cut off, what the end of its session would have
// brought, then the broker, still fenced. previous is the broker epoch in the
// clean-shutdown markers of all directories, Unclean when they are missing or
// differ. It returns the broker epoch of this run, which the next clean stop
// puts into the markers.
func (c *Controller) Register(previous int64) (epoch int64, err error) {
	steps := []func(*metadata.Image) ([]metadata.Record, error){
		c.registerController,
		c.fenceStale,
		func(image *metadata.Image) ([]metadata.Record, error) { return c.registerBroker(image, previous) },
		c.cordonNothing,
	}
	for _, step := range steps {
		if _, err := c.q.Update(step); err != nil {
			return 0, err
		}
	}
	return c.Image().Broker(c.id).Epoch, nil
}

func (c *Controller) registerController(image *metadata.Image) ([]metadata.Record, error) {
	if image.Feature(metadata.MetadataVersion) < metadata.V3_7_IV0 {
		return nil, nil
	}
	return []metadata.Record{&metadata.RegisterControllerRecord{
		ControllerID:  c.id,
		IncarnationID: c.cfg.NewID(),
		Endpoints:     c.cfg.ControllerEndpoints,
		Features:      metadata.SupportedFeatures(),
	}}, nil
}

// fenceStale ends the session of a run that did not stop cleanly. Kafka waits
// 9 s for it to expire; here nobody else can be that broker, since this process
// holds the lock of its directories.
func (c *Controller) fenceStale(image *metadata.Image) ([]metadata.Record, error) {
	b := image.Broker(c.id)
	if b == nil || b.Fenced {
		return nil, nil
	}
	records := c.resignAll(image)
	return append(records, &metadata.BrokerRegistrationChangeRecord{BrokerID: c.id, BrokerEpoch: b.Epoch, Fenced: metadata.SwitchOn}), nil
}

// registerBroker writes the registration. After an unclean stop records may be
// missing from the logs, so the broker is first taken out of every set of
// eligible leaders (KIP-966). The broker epoch is the first offset of the batch.
func (c *Controller) registerBroker(image *metadata.Image, previous int64) ([]metadata.Record, error) {
	var records []metadata.Record
	if b := image.Broker(c.id); b != nil && b.Epoch != previous {
		records = c.clearEligible(image)
	}
	level := image.Feature(metadata.MetadataVersion)
	r := &metadata.RegisterBrokerRecord{
		BrokerID:      c.id,
		IncarnationID: c.cfg.NewID(),
		BrokerEpoch:   int64(image.End),
		Endpoints:     c.cfg.BrokerEndpoints,
		Features:      metadata.SupportedFeatures(),
		Fenced:        true,
	}
	if level >= metadata.V3_7_IV2 {
		r.LogDirs = sortedLikeJava(c.cfg.LogDirs)
	}
	if rack := c.cfg.Broker().Rack; rack != "" {
		r.Rack = &rack
	}
	return append(records, r), nil
}

// sortedLikeJava orders directory ids as java.util.UUID compares: by their
// halves as signed numbers.
func sortedLikeJava(ids []kafka.UUID) []kafka.UUID {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b kafka.UUID) int {
		half := func(u kafka.UUID, at int) int64 { return int64(binary.BigEndian.Uint64(u[at:])) }
		return cmp.Or(cmp.Compare(half(a, 0), half(b, 0)), cmp.Compare(half(a, 8), half(b, 8)))
	})
	return slices.CompactFunc(sorted, func(a, b kafka.UUID) bool { return bytes.Equal(a[:], b[:]) })
}

// cordonNothing tells that no directory is cordoned, as the first heartbeat of
// a broker does since 4.3.
func (c *Controller) cordonNothing(image *metadata.Image) ([]metadata.Record, error) {
	b := image.Broker(c.id)
	if image.Feature(metadata.MetadataVersion) < metadata.V4_3_IV0 || b.CordonedLogDirs != nil {
		return nil, nil
	}
	return []metadata.Record{&metadata.BrokerRegistrationChangeRecord{BrokerID: c.id, BrokerEpoch: b.Epoch, CordonedLogDirs: []kafka.UUID{}}}, nil
}

// Unfence makes the registered broker active and the leader of its partitions.
func (c *Controller) Unfence() error {
	return c.inBatches(func(image *metadata.Image) []metadata.Record {
		var records []metadata.Record
		if b := image.Broker(c.id); b.Fenced {
			records = append(records, &metadata.BrokerRegistrationChangeRecord{BrokerID: c.id, BrokerEpoch: b.Epoch, Fenced: metadata.SwitchOff})
		}
		return append(records, c.electAll(image)...)
	})
}

// ControlledShutdown takes the leadership of every partition away, so that no
// data log is appended to any more, as step 1 of a clean stop. A broker that
// leads nothing goes without it. Fence follows.
func (c *Controller) ControlledShutdown() error {
	return c.inBatches(func(image *metadata.Image) []metadata.Record {
		resigned := c.resignAll(image)
		if len(resigned) == 0 {
			return nil
		}
		var records []metadata.Record
		if b := image.Broker(c.id); b != nil && !b.InControlledShutdown {
			records = append(records, &metadata.BrokerRegistrationChangeRecord{BrokerID: c.id, BrokerEpoch: b.Epoch, InControlledShutdown: metadata.SwitchOn})
		}
		return append(records, resigned...)
	})
}

// Fence marks the broker as gone, the last record of a clean stop.
func (c *Controller) Fence() error {
	_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
		b := image.Broker(c.id)
		if b == nil || b.Fenced {
			return nil, nil
		}
		return []metadata.Record{&metadata.BrokerRegistrationChangeRecord{BrokerID: c.id, BrokerEpoch: b.Epoch, Fenced: metadata.SwitchOn}}, nil
	})
	return err
}

// inBatches writes what decide returns, at most recordsPerBatch records at a
// time, until it returns no more. decide is about the newest state each time.
func (c *Controller) inBatches(decide func(*metadata.Image) []metadata.Record) error {
	for more := true; more; {
		_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
			records := decide(image)
			more = len(records) > recordsPerBatch
			return records[:min(len(records), recordsPerBatch)], nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
