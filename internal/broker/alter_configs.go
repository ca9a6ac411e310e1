package broker

// AlterConfigs (key 33), versions 0 to 2: flexible from 2.
//
// The old form: it replaces the whole set of a resource, so keys that are not
// listed are deleted and an empty list clears all. Loggers cannot be changed by
// it. See incremental_alter_configs.go for the form that clients should use.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/metadata"
)

func (b *Broker) alterConfigs(_ *Context, q *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	answer := kmsg.NewPtrAlterConfigsResponse()
	answer.Resources = make([]kmsg.AlterConfigsResponseResource, 0, len(q.Resources))
	resources := make([]controller.ResourceConfigs, len(q.Resources))
	for i := range q.Resources {
		r := &q.Resources[i]
		resources[i].Resource = configResource(r.ResourceType, r.ResourceName)
		for _, c := range r.Configs {
			resources[i].Configs = append(resources[i].Configs, controller.Setting{Name: c.Name, Value: c.Value})
		}
	}
	refused, err := b.opts.Controller.AlterConfigs(resources, q.ValidateOnly)
	for i := range q.Resources {
		r := kmsg.NewAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = q.Resources[i].ResourceType, q.Resources[i].ResourceName
		r.ErrorCode, r.ErrorMessage = alterResult(refused, i, err)
		answer.Resources = append(answer.Resources, r)
	}
	return answer
}

func configResource(t kmsg.ConfigResourceType, name string) metadata.ConfigResource {
	return metadata.ConfigResource{Type: metadata.ResourceType(t), Name: name}
}

// alterResult is the code and the message of the i-th resource.
func alterResult(refused []*controller.Error, i int, err error) (code int16, message *string) {
	switch {
	case err != nil:
		text := err.Error()
		return int16(ErrorCode(err)), &text
	case refused[i] != nil:
		return int16(refused[i].Code), &refused[i].Message
	}
	return 0, nil
}
