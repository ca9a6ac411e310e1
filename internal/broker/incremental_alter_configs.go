package broker

// IncrementalAlterConfigs (key 44), versions 0 and 1: flexible from 1.
//
// Single keys are set, deleted, or, where they are lists, appended to and
// subtracted from. A resource is changed as a whole or not at all; resources
// are independent of each other. The log level of this broker is changed here
// and now and is not stored.

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) incrementalAlterConfigs(_ *Context, q *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	answer := kmsg.NewPtrIncrementalAlterConfigsResponse()
	answer.Resources = make([]kmsg.IncrementalAlterConfigsResponseResource, 0, len(q.Resources))
	var resources []controller.ResourceChanges
	loggers := map[int]*controller.Error{}
	for i := range q.Resources {
		r := &q.Resources[i]
		if r.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
			loggers[i] = b.alterLogger(r, q.ValidateOnly)
			continue
		}
		resources = append(resources, resourceChanges(r))
	}
	refused, err := b.opts.Controller.IncrementalAlterConfigs(resources, q.ValidateOnly)
	next := 0
	for i := range q.Resources {
		r := kmsg.NewIncrementalAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = q.Resources[i].ResourceType, q.Resources[i].ResourceName
		if logger, ok := loggers[i]; ok {
			r.ErrorCode, r.ErrorMessage = alterResult([]*controller.Error{logger}, 0, nil)
		} else {
			r.ErrorCode, r.ErrorMessage = alterResult(refused, next, err)
			next++
		}
		answer.Resources = append(answer.Resources, r)
	}
	return answer
}

func resourceChanges(r *kmsg.IncrementalAlterConfigsRequestResource) controller.ResourceChanges {
	changes := controller.ResourceChanges{Resource: configResource(r.ResourceType, r.ResourceName)}
	for _, c := range r.Configs {
		changes.Changes = append(changes.Changes, controller.ConfigChange{Name: c.Name, Op: controller.ConfigOp(c.Op), Value: c.Value})
	}
	return changes
}

// alterLogger changes the level of the root logger (RuntimeLoggerManager).
func (b *Broker) alterLogger(r *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) *controller.Error {
	if refused := b.checkOwnID(r.ResourceName, ""); refused != nil {
		return refused
	}
	level, change := slog.LevelInfo, false
	for _, c := range r.Configs {
		switch controller.ConfigOp(c.Op) {
		case controller.OpDelete:
			if c.Name != rootLogger {
				return unknownLogger(c.Name)
			}
			return invalid("Removing the log level of the %s logger is not allowed", rootLogger)
		case controller.OpSet:
			if c.Name != rootLogger {
				return unknownLogger(c.Name)
			}
			if c.Value == nil {
				return invalid("Null value not supported for : %s", c.Name)
			}
			l, ok := slogLevel(*c.Value)
			if !ok {
				return &controller.Error{Code: kafka.ErrInvalidConfig, Message: "Cannot set the log level of " + c.Name + " to " + *c.Value +
					" as it is not a supported log level. Valid log levels are [DEBUG, ERROR, FATAL, INFO, TRACE, WARN]"}
			}
			level, change = l, true
		default:
			return invalid("%s operation is not allowed for the BROKER_LOGGER resource", controller.ConfigOp(c.Op))
		}
	}
	if change && !validateOnly && b.opts.LogLevel != nil {
		b.opts.LogLevel.Set(level)
	}
	return nil
}

func unknownLogger(name string) *controller.Error {
	return &controller.Error{Code: kafka.ErrInvalidConfig, Message: "Logger " + name + " does not exist!"}
}

// slogLevel reads one of Log4j's levels.
func slogLevel(name string) (slog.Level, bool) {
	switch name {
	case "TRACE":
		return slog.LevelDebug - 4, true
	case "DEBUG":
		return slog.LevelDebug, true
	case "INFO":
		return slog.LevelInfo, true
	case "WARN":
		return slog.LevelWarn, true
	case "ERROR", "FATAL":
		return slog.LevelError, true
	}
	return 0, false
}
