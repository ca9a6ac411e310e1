package controller

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

const minInsyncReplicas = "min.insync.replicas"

// ConfigOp is what an incremental change does to a key (AlterConfigOp.OpType).
type ConfigOp int8

// The operations. Append and Subtract are for lists alone.
const (
	OpSet      ConfigOp = 0
	OpDelete   ConfigOp = 1
	OpAppend   ConfigOp = 2
	OpSubtract ConfigOp = 3
)

func (o ConfigOp) String() string {
	switch o {
	case OpSet:
		return "SET"
	case OpDelete:
		return "DELETE"
	case OpAppend:
		return "APPEND"
	case OpSubtract:
		return "SUBTRACT"
	}
	return strconv.Itoa(int(o))
}

// ConfigChange is one operation of an incremental change. A nil Value is null.
type ConfigChange struct {
	Name  string
	Op    ConfigOp
	Value *string
}

// ResourceChanges are the changes of one resource.
type ResourceChanges struct {
	Resource metadata.ConfigResource
	Changes  []ConfigChange
}

// ResourceConfigs is the whole set of a resource's dynamic configs.
type ResourceConfigs struct {
	Resource metadata.ConfigResource
	Configs  []Setting
}

// IncrementalAlterConfigs changes single keys. Each resource succeeds or fails
// as a whole and on its own; the errors, nil for none, are in their order.
func (c *Controller) IncrementalAlterConfigs(resources []ResourceChanges, validateOnly bool) ([]*Error, error) {
	list := make([]metadata.ConfigResource, len(resources))
	for i := range resources {
		list[i] = resources[i].Resource
	}
	return c.alter(list, validateOnly, func(image *metadata.Image, i int) ([]*metadata.ConfigRecord, *Error) {
		return c.changedKeys(image, &resources[i])
	})
}

// AlterConfigs replaces the whole set of each resource: keys that are not
// listed are deleted. Otherwise it is as IncrementalAlterConfigs.
func (c *Controller) AlterConfigs(resources []ResourceConfigs, validateOnly bool) ([]*Error, error) {
	list := make([]metadata.ConfigResource, len(resources))
	for i := range resources {
		list[i] = resources[i].Resource
	}
	return c.alter(list, validateOnly, func(image *metadata.Image, i int) ([]*metadata.ConfigRecord, *Error) {
		return c.replacedSet(image, &resources[i])
	})
}

func (c *Controller) alter(resources []metadata.ConfigResource, validateOnly bool,
	changes func(*metadata.Image, int) ([]*metadata.ConfigRecord, *Error)) ([]*Error, error) {
	results := make([]*Error, len(resources))
	seen := map[metadata.ConfigResource]int{}
	for _, r := range resources {
		seen[r]++
	}
	_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
		var records []metadata.Record
		for i, res := range resources {
			if seen[res] > 1 {
				results[i] = refuse(kafka.ErrInvalidRequest, "Each resource must appear at most once.")
				continue
			}
			changed, err := changes(image, i)
			if err == nil {
				err = c.checkChange(image, res, changed)
			}
			if results[i] = err; err != nil {
				continue
			}
			for _, r := range changed {
				records = append(records, r)
			}
			records = append(records, clearElrFor(image, changed)...)
		}
		if validateOnly {
			return nil, nil
		}
		return records, nil
	})
	return results, err
}

// clearElrFor empties the eligible leaders where the number of replicas that
// must be in sync changes, since they were chosen by the old one (KIP-966).
func clearElrFor(image *metadata.Image, changed []*metadata.ConfigRecord) []metadata.Record {
	var records []metadata.Record
	if !elrEnabled(image) {
		return nil
	}
	for _, r := range changed {
		if r.Name != minInsyncReplicas {
			continue
		}
		clear := &metadata.ClearElrRecord{}
		if r.ResourceType == metadata.ResourceTopic {
			clear.TopicName = r.ResourceName
		}
		records = append(records, clear)
	}
	return records
}

// changedKeys turns operations into records, sorted by key: for the keys that
// really change, and for all of a broker, which takes a record as the request to
// read files such as key stores again (KAFKA-14136).
func (c *Controller) changedKeys(image *metadata.Image, rc *ResourceChanges) ([]*metadata.ConfigRecord, *Error) {
	if err := checkOperations(rc); err != nil {
		return nil, err
	}
	changes := slices.SortedFunc(slices.Values(rc.Changes), func(a, b ConfigChange) int { return strings.Compare(a.Name, b.Name) })
	var records []*metadata.ConfigRecord
	for _, ch := range changes {
		current, isSet := image.ConfigValue(rc.Resource, ch.Name)
		var next *string
		switch ch.Op {
		case OpSet:
			next = ch.Value
		case OpDelete:
		default:
			list, err := c.changedList(rc.Resource, ch, current, isSet)
			if err != nil {
				return nil, err
			}
			next = list
		}
		unchanged := next == nil && !isSet || next != nil && isSet && *next == current
		if unchanged && rc.Resource.Type != metadata.ResourceBroker {
			continue
		}
		records = append(records, &metadata.ConfigRecord{ResourceType: rc.Resource.Type, ResourceName: rc.Resource.Name, Name: ch.Name, Value: next})
	}
	return records, nil
}

// checkOperations refuses what is wrong with a request whatever the state.
func checkOperations(rc *ResourceChanges) *Error {
	names := map[string]bool{}
	var null []string
	for _, ch := range rc.Changes {
		if names[ch.Name] {
			return refuse(kafka.ErrInvalidRequest, "Error due to duplicate config keys")
		}
		names[ch.Name] = true
		if ch.Op < OpSet || ch.Op > OpSubtract {
			return refuse(kafka.ErrInvalidRequest, "Unknown operations type %d", ch.Op)
		}
		if ch.Op != OpDelete && ch.Value == nil {
			null = append(null, ch.Name)
		}
	}
	if len(null) > 0 {
		return refuse(kafka.ErrInvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
	}
	return nil
}

// changedList appends to or subtracts from a list. A list that is not set
// begins as the default.
func (c *Controller) changedList(res metadata.ConfigResource, ch ConfigChange, current string, isSet bool) (*string, *Error) {
	k, ok := config.Lookup(scopeOf(res.Type), ch.Name)
	if !ok || k.Type != config.TypeList {
		return nil, refuse(kafka.ErrInvalidConfig, "Can't %s to key %s because its type is not LIST.", ch.Op, ch.Name)
	}
	if !isSet {
		current = k.Default
	}
	var parts []string
	for _, p := range strings.Split(current, ",") {
		if p != "" {
			parts = append(parts, p)
		}
	}
	for _, v := range strings.Split(*ch.Value, ",") {
		at := slices.Index(parts, v)
		switch {
		case ch.Op == OpAppend && at < 0:
			parts = append(parts, v)
		case ch.Op == OpSubtract && at >= 0:
			parts = slices.Delete(parts, at, at+1)
		}
	}
	next := strings.Join(parts, ",")
	return &next, nil
}

func scopeOf(t metadata.ResourceType) config.Scope {
	switch t {
	case metadata.ResourceTopic:
		return config.ScopeTopic
	case metadata.ResourceBroker:
		return config.ScopeBroker
	case metadata.ResourceClientMetrics:
		return config.ScopeClientMetrics
	}
	return config.ScopeGroup
}

// replacedSet gives the changed keys, then nulls for the dropped ones.
func (c *Controller) replacedSet(image *metadata.Image, rc *ResourceConfigs) ([]*metadata.ConfigRecord, *Error) {
	wanted := map[string]string{}
	var null []string
	for _, s := range rc.Configs {
		if _, repeated := wanted[s.Name]; repeated || slices.Contains(null, s.Name) {
			return nil, refuse(kafka.ErrInvalidRequest, "Error due to duplicate config keys")
		}
		if s.Value == nil {
			null = append(null, s.Name)
			continue
		}
		wanted[s.Name] = *s.Value
	}
	if len(null) > 0 {
		return nil, refuse(kafka.ErrInvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
	}
	have := image.Config(rc.Resource)
	var records []*metadata.ConfigRecord
	add := func(name string, value *string) {
		records = append(records, &metadata.ConfigRecord{ResourceType: rc.Resource.Type, ResourceName: rc.Resource.Name, Name: name, Value: value})
	}
	for _, name := range sortedKeys(wanted) {
		if value, isSet := have[name]; !isSet || value != wanted[name] || rc.Resource.Type == metadata.ResourceBroker {
			value := wanted[name]
			add(name, &value)
		}
	}
	for _, name := range sortedKeys(have) {
		if _, kept := wanted[name]; !kept {
			add(name, nil)
		}
	}
	return records, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// checkChange validates what a resource's configs would be after the change.
func (c *Controller) checkChange(image *metadata.Image, res metadata.ConfigResource, changed []*metadata.ConfigRecord) *Error {
	after := image.Config(res)
	for _, r := range changed {
		if r.Value == nil {
			delete(after, r.Name)
		} else {
			after[r.Name] = *r.Value
		}
	}
	switch res.Type {
	case metadata.ResourceTopic:
		return c.checkTopicConfigs(image, res.Name, after)
	case metadata.ResourceBroker:
		return c.checkBrokerConfigs(image, res.Name, changed, after)
	case metadata.ResourceClientMetrics:
		if res.Name == "" {
			return refuse(kafka.ErrInvalidRequest, "Subscription name can't be empty")
		}
		return firstError(after, config.CheckClientMetricsKey)
	case metadata.ResourceGroup:
		if res.Name == "" {
			return refuse(kafka.ErrInvalidRequest, "Default group resources are not allowed.")
		}
		return firstError(after, c.cfg.Broker().CheckGroupKey)
	}
	return refuse(kafka.ErrInvalidRequest, "Unknown resource type %d", res.Type)
}

func (c *Controller) checkTopicConfigs(image *metadata.Image, name string, after map[string]string) *Error {
	if name == "" {
		return refuse(kafka.ErrInvalidRequest, "Default topic resources are not allowed.")
	}
	if reason := ValidateTopicName(name); reason != "" {
		return refuse(kafka.ErrInvalidTopicException, "%s", reason)
	}
	if _, err := config.ParseTopic(after, c.cfg.Broker()); err != nil {
		return refuse(kafka.ErrInvalidConfig, "%s", err.Error())
	}
	if image.Topic(name) == nil {
		return refuse(kafka.ErrUnknownTopicOrPartition, "The topic '%s' does not exist.", name)
	}
	return nil
}

func (c *Controller) checkBrokerConfigs(image *metadata.Image, name string, changed []*metadata.ConfigRecord, after map[string]string) *Error {
	if name != "" {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return refuse(kafka.ErrInvalidRequest, "Node id must be an integer, but it is: %s", name)
		}
		if kafka.BrokerID(id) != c.id {
			return refuse(kafka.ErrInvalidRequest, "Unexpected broker id, expected %d, but received %s", c.id, name)
		}
	}
	for _, r := range changed {
		if r.Name == minInsyncReplicas && elrEnabled(image) {
			if name != "" {
				return refuse(kafka.ErrInvalidConfig, "Broker-level %s cannot be altered while ELR is enabled.", minInsyncReplicas)
			}
			if r.Value == nil {
				return refuse(kafka.ErrInvalidConfig, "Cluster-level %s cannot be removed while ELR is enabled.", minInsyncReplicas)
			}
		}
	}
	return asError(config.CheckBrokerChange(after, name != ""), kafka.ErrInvalidRequest)
}

// firstError checks values in the order of their names.
func firstError(values map[string]string, check func(name, value string) error) *Error {
	for _, name := range sortedKeys(values) {
		if err := check(name, values[name]); err != nil {
			return asError(err, kafka.ErrInvalidConfig)
		}
	}
	return nil
}

func asError(err error, code kafka.ErrorCode) *Error {
	if err == nil {
		return nil
	}
	var change *config.ChangeError
	if errors.As(err, &change) {
		if change.Request {
			return refuse(kafka.ErrInvalidRequest, "%s", change.Message)
		}
		return refuse(kafka.ErrInvalidConfig, "%s", change.Message)
	}
	return refuse(code, "%s", err.Error())
}
