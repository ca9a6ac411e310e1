package broker

// DescribeConfigs (key 32), versions 1 to 4: synonyms when asked for from 1; type
// and documentation from 3 (KIP-569); flexible from 4.
//
// A null or empty list of keys asks for all; unknown keys are left out. A broker
// is described by its own id, or, named "", by the dynamic values that hold for
// every broker. Groups and client-metrics subscriptions need not exist: they
// have defaults. Sensitive values are null. The message is "" on success and for
// a topic that does not exist.

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

func (b *Broker) describeConfigs(_ *Context, q *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	answer := kmsg.NewPtrDescribeConfigsResponse()
	answer.Resources = make([]kmsg.DescribeConfigsResponseResource, 0, len(q.Resources))
	image := b.opts.Image()
	for i := range q.Resources {
		res := &q.Resources[i]
		entries, refused := b.describeResource(image, res)
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = res.ResourceType, res.ResourceName
		out.ErrorMessage = new(string)
		if refused != nil {
			out.ErrorCode, out.ErrorMessage = int16(refused.Code), &refused.Message
		}
		out.Configs = make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(entries))
		for j := range entries {
			out.Configs = append(out.Configs, describedConfig(&entries[j], q.IncludeSynonyms, q.IncludeDocumentation))
		}
		answer.Resources = append(answer.Resources, out)
	}
	return answer
}

func describedConfig(e *config.Entry, synonyms, documentation bool) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value = e.Name, nullable(e.Value, e.Null)
	c.ReadOnly, c.IsSensitive, c.Source = e.ReadOnly, e.Sensitive, kmsg.ConfigSource(e.Source)
	c.ConfigType = kmsg.ConfigType(e.Type)
	c.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if synonyms {
		for _, s := range e.Synonyms {
			synonym := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			synonym.Name, synonym.Value, synonym.Source = s.Name, nullable(s.Value, s.Null), kmsg.ConfigSource(s.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, synonym)
		}
	}
	if documentation {
		c.Documentation = &e.Doc
	}
	return c
}

func invalid(format string, args ...any) *controller.Error {
	return &controller.Error{Code: kafka.ErrInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// describeResource gives the entries of one resource.
func (b *Broker) describeResource(image *metadata.Image, res *kmsg.DescribeConfigsRequestResource) ([]config.Entry, *controller.Error) {
	name, keys, conf := res.ResourceName, res.ConfigNames, b.opts.Config()
	own := image.Config(metadata.ConfigResource{Type: metadata.ResourceType(res.ResourceType), Name: name})
	switch res.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if reason := controller.ValidateTopicName(name); reason != "" {
			return nil, &controller.Error{Code: kafka.ErrInvalidTopicException, Message: reason}
		}
		if image.Topic(name) == nil {
			return nil, &controller.Error{Code: kafka.ErrUnknownTopicOrPartition}
		}
		return conf.DescribeTopic(own, keys), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return conf.DescribeDefaults(keys), nil
		}
		if refused := b.checkOwnID(name, " or empty string"); refused != nil {
			return nil, refused
		}
		return conf.Describe(keys), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return b.describeLoggers(name, keys)
	case resourceClientMetrics:
		if name == "" {
			return nil, invalid("Client metrics subscription name must not be empty")
		}
		return conf.DescribeClientMetrics(own, keys), nil
	case resourceGroup:
		if name == "" {
			return nil, invalid("Group name must not be empty")
		}
		return conf.DescribeGroup(own, keys), nil
	}
	return nil, invalid("Unsupported resource type: %s", resourceTypeName(res.ResourceType))
}

// Resource types that are newer than the loggers.
const (
	resourceClientMetrics = kmsg.ConfigResourceType(metadata.ResourceClientMetrics)
	resourceGroup         = kmsg.ConfigResourceType(metadata.ResourceGroup)
)

// resourceTypeName is the name in ConfigResource.Type for types without configs.
func resourceTypeName(t kmsg.ConfigResourceType) string {
	if t == 0 {
		return "UNKNOWN"
	}
	return strconv.Itoa(int(t))
}

// checkOwnID refuses the name of any broker but this one.
func (b *Broker) checkOwnID(name, also string) *controller.Error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return invalid("Broker id must be an integer, but it is: %s", name)
	}
	if kafka.BrokerID(id) != b.opts.NodeID {
		return invalid("Unexpected broker id, expected %d%s, but received %s", b.opts.NodeID, also, name)
	}
	return nil
}

// rootLogger is the only logger that has a level of its own.
const rootLogger = "root"

// describeLoggers answers for the one logger there is.
func (b *Broker) describeLoggers(name string, keys []string) ([]config.Entry, *controller.Error) {
	if name == "" {
		return nil, invalid("Broker id must not be empty")
	}
	if refused := b.checkOwnID(name, ""); refused != nil {
		return nil, refused
	}
	if len(keys) > 0 && !slices.Contains(keys, rootLogger) {
		return nil, nil
	}
	return []config.Entry{{Name: rootLogger, Value: b.logLevel(), Source: config.SourceLogger, Type: config.TypeString}}, nil
}

// logLevel is the level in force, in Log4j's words.
func (b *Broker) logLevel() string {
	if b.opts.LogLevel == nil {
		return strings.ToUpper(b.opts.Config().LogLevel)
	}
	switch level := b.opts.LogLevel.Level(); {
	case level < slog.LevelDebug:
		return "TRACE"
	case level < slog.LevelInfo:
		return "DEBUG"
	case level < slog.LevelWarn:
		return "INFO"
	case level < slog.LevelError:
		return "WARN"
	}
	return "ERROR"
}
