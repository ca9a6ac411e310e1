package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func topicsOptions() []kafkaOption {
	return []kafkaOption{
		{"bootstrap-server", requiredArg, true, "Host and port of a broker."},
		{"command-config", requiredArg, false, "File of client properties."},
		{"list", noArg, false, "List topics."},
		{"create", noArg, false, "Create a topic."},
		{"delete", noArg, false, "Delete topics."},
		{"alter", noArg, false, "Add partitions."},
		{"describe", noArg, false, "Show partitions and settings."},
		{"topic", requiredArg, false, "Name of the topic; a regular expression for all but --create."},
		{"topic-id", requiredArg, false, "Id of the topic, for --describe."},
		{"config", requiredArg, false, "KEY=VALUE of a new topic; may be repeated."},
		{"delete-config", requiredArg, false, "Not with a bootstrap server; use kafka-configs."},
		{"partitions", requiredArg, false, "Number of partitions."},
		{"replication-factor", requiredArg, false, "Number of replicas of each partition."},
		{"replica-assignment", requiredArg, false, "Brokers of each partition: 1:2,2:3."},
		{"under-replicated-partitions", noArg, false, "With --describe: only partitions with replicas out of sync."},
		{"unavailable-partitions", noArg, false, "With --describe: only partitions without a leader."},
		{"under-min-isr-partitions", noArg, false, "With --describe: only partitions below min.insync.replicas."},
		{"at-min-isr-partitions", noArg, false, "With --describe: only partitions at min.insync.replicas."},
		{"topics-with-overrides", noArg, false, "With --describe: only topics with settings."},
		{"if-exists", noArg, false, "Do nothing when the topic is not there."},
		{"if-not-exists", noArg, false, "Do nothing when the topic is there."},
		{"exclude-internal", noArg, false, "Leave out internal topics."},
		{"partition-size-limit-per-response", requiredArg, false, "Most partitions of one answer."},
	}
}

// reports are the options that limit --describe to some partitions.
func topicReports() []string {
	return []string{"under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions", "unavailable-partitions"}
}

// topics is kafka-topics.sh (TopicCommand).
func (r *kafkaRun) topics(ctx context.Context) error {
	if err := r.checkTopics(); err != nil {
		return err
	}
	c, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	switch {
	case r.opts.has("create"):
		err = r.createTopic(ctx, c)
	case r.opts.has("alter"):
		err = r.alterTopics(ctx, c)
	case r.opts.has("list"):
		err = r.listTopics(ctx, c)
	case r.opts.has("describe"):
		err = r.describeTopics(ctx, c)
	default:
		err = r.deleteTopics(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(r.Stdout, "Error while executing topic command : "+messageOf("", err))
		return exitCode(exitFailed)
	}
	return nil
}

// checkTopics is TopicCommandOptions.checkArgs.
func (r *kafkaRun) checkTopics() error {
	o := r.opts
	if o.count("list", "describe", "create", "alter", "delete") != 1 {
		return &toolUsage{"Command must include exactly one action: --list, --describe, --create, --alter or --delete"}
	}
	if !o.has("bootstrap-server") {
		return &javaError{"java.lang.IllegalArgumentException", "--bootstrap-server must be specified"}
	}
	if o.has("describe") && o.has("if-exists") && !o.has("topic") && !o.has("topic-id") {
		return &toolUsage{"--topic or --topic-id is required to describe a topic"}
	}
	if o.has("create") {
		if err := o.need("topic"); err != nil {
			return err
		}
	}
	if o.has("alter") {
		if o.has("config") {
			return &toolUsage{`Option combination "[[config], [bootstrap-server]]" can't be used with option "[alter]" (To alter topic configurations, the kafka-configs tool can be used.)`}
		}
		if err := o.need("partitions"); err != nil {
			return err
		}
	}
	return r.checkTopicCombinations()
}

func (r *kafkaRun) checkTopicCombinations() error {
	all := []string{"alter", "create", "delete", "describe", "list"}
	except := func(keep ...string) []string {
		var out []string
		for _, a := range all {
			if !strings.Contains(" "+strings.Join(keep, " ")+" ", " "+a+" ") {
				out = append(out, a)
			}
		}
		return out
	}
	rules := []struct {
		used   string
		others []string
	}{
		{"config", except("alter", "create")},
		{"delete-config", except("alter")},
		{"partitions", except("alter", "create")},
		{"replication-factor", except("create")},
		{"replica-assignment", except("alter", "create")},
		{"topics-with-overrides", append(except("describe"), topicReports()...)},
		{"if-exists", except("alter", "delete", "describe")},
		{"if-not-exists", except("create")},
		{"exclude-internal", except("list", "describe")},
	}
	for _, name := range topicReports() {
		others := except("describe")
		for _, other := range topicReports() {
			if other != name {
				others = append(others, other)
			}
		}
		rules = append(rules, struct {
			used   string
			others []string
		}{name, append(others, "topics-with-overrides")})
	}
	if r.opts.has("create") {
		rules = append(rules, struct {
			used   string
			others []string
		}{"replica-assignment", []string{"partitions", "replication-factor"}})
	}
	for _, rule := range rules {
		if err := r.opts.exclude(rule.used, rule.others...); err != nil {
			return err
		}
	}
	return nil
}

func (r *kafkaRun) createTopic(ctx context.Context, c *client) error {
	name := r.opts.one("topic")
	if strings.ContainsAny(name, "._") {
		fmt.Fprintln(r.Stdout, "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid issues it is best to use either, but not both.")
	}
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = name
	partitions, err := r.opts.integer("partitions", -1)
	if err != nil {
		return err
	}
	replicas, err := r.opts.integer("replication-factor", -1)
	if err != nil {
		return err
	}
	if r.opts.has("replication-factor") && (replicas < 1 || replicas > 32767) {
		return toolError("The replication factor must be between 1 and 32767 inclusive")
	}
	if r.opts.has("partitions") && partitions < 1 {
		return toolError("The partitions must be greater than 0")
	}
	topic.NumPartitions, topic.ReplicationFactor = int32(partitions), int16(replicas)
	for _, setting := range r.opts.values["config"] {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return toolError(`requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".`)
		}
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = strings.TrimSpace(key), kmsg.StringPtr(strings.TrimSpace(value))
		topic.Configs = append(topic.Configs, cfg)
	}
	if topic.ReplicaAssignment, err = parseAssignment(r.opts.one("replica-assignment")); err != nil {
		return err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(requestLimit.Milliseconds())
	req.Topics = append(req.Topics, topic)
	answer, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return err
	}
	for _, t := range answer.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if errors.Is(err, kerr.TopicAlreadyExists) && r.opts.has("if-not-exists") {
			return nil
		}
		if err != nil {
			return brokerError(t.ErrorMessage, err)
		}
	}
	fmt.Fprintln(r.Stdout, "Created topic "+name+".")
	return nil
}

// brokerError is the broker's own text for an error, or the client's.
func brokerError(message *string, err error) error {
	if message != nil && *message != "" {
		return errors.New(*message)
	}
	return errors.New(messageOf("", err))
}

func parseAssignment(text string) ([]kmsg.CreateTopicsRequestTopicReplicaAssignment, error) {
	if text == "" {
		return nil, nil
	}
	var list []kmsg.CreateTopicsRequestTopicReplicaAssignment
	for i, partition := range strings.Split(text, ",") {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = int32(i)
		for _, word := range strings.Split(partition, ":") {
			id, err := strconv.ParseInt(strings.TrimSpace(word), 10, 32)
			if err != nil {
				return nil, toolError(fmt.Sprintf("For input string: %q", word))
			}
			a.Replicas = append(a.Replicas, int32(id))
		}
		list = append(list, a)
	}
	return list, nil
}

// matchingTopics are the names that --topic matches: a regular expression, in
// which a comma is an alternative. Without --topic it is all names.
func (r *kafkaRun) matchingTopics(ctx context.Context, c *client) ([]string, error) {
	topics, err := c.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	include, err := includeList(r.opts.one("topic"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range topics.Sorted() {
		if t.IsInternal && r.opts.has("exclude-internal") || include != nil && !include.MatchString(t.Topic) {
			continue
		}
		names = append(names, t.Topic)
	}
	return names, nil
}

// includeList is IncludeList: nil for no expression, which matches everything.
func includeList(text string) (*regexp.Regexp, error) {
	text = strings.Trim(strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), ",", "|"), " ", ""), `"'`)
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return nil, errors.New(text + " is an invalid regex.")
	}
	return re, nil
}

func (r *kafkaRun) listTopics(ctx context.Context, c *client) error {
	names, err := r.matchingTopics(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.Stdout, strings.Join(names, "\n"))
	return nil
}

// existingTopics are the matching ones; none is an error unless --if-exists.
func (r *kafkaRun) existingTopics(ctx context.Context, c *client) ([]string, error) {
	names, err := r.matchingTopics(ctx, c)
	if err == nil && len(names) == 0 && r.opts.has("topic") && !r.opts.has("if-exists") {
		err = errors.New("Topic '" + r.opts.one("topic") + "' does not exist as expected")
	}
	return names, err
}

func (r *kafkaRun) alterTopics(ctx context.Context, c *client) error {
	names, err := r.existingTopics(ctx, c)
	if err != nil || len(names) == 0 {
		return err
	}
	n, err := r.opts.integer("partitions", -1)
	if err != nil {
		return err
	}
	answers, err := c.admin.UpdatePartitions(ctx, int(n), names...)
	if err != nil {
		return err
	}
	for _, a := range answers.Sorted() {
		if a.Err != nil {
			return errors.New(messageOf(a.ErrMessage, a.Err))
		}
	}
	return nil
}

func (r *kafkaRun) deleteTopics(ctx context.Context, c *client) error {
	names, err := r.existingTopics(ctx, c)
	if err != nil || len(names) == 0 {
		return err
	}
	answers, err := c.admin.DeleteTopics(ctx, names...)
	if err != nil {
		return err
	}
	for _, a := range answers.Sorted() {
		if a.Err != nil {
			return errors.New(messageOf(a.ErrMessage, a.Err))
		}
	}
	return nil
}

// parseTopicID reads --topic-id; the texts are those of Uuid.fromString.
func parseTopicID(text string) (kafka.TopicID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(text) > 24 {
		return kafka.TopicID{}, toolError("Input string with prefix `" + text[:min(24, len(text))] + "` is too long to be decoded as a base64 UUID")
	}
	if len(raw) != 16 {
		return kafka.TopicID{}, toolError(fmt.Sprintf("Input string `%s` decoded as %d bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID", text, len(raw)))
	}
	return kafka.TopicID(raw), nil
}
