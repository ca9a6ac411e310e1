package broker

// DescribeCluster (key 60), versions 0 to 2: the endpoint type from 1 (KIP-919),
// fenced brokers from 2 (KIP-1073). This listener serves brokers; the endpoints
// of controllers are told on the controller's listener alone.

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// Endpoint types of DescribeCluster.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func (b *Broker) describeCluster(c *Context, q *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	answer := kmsg.NewPtrDescribeClusterResponse()
	answer.ControllerID = int32(kafka.NoBroker)
	switch q.EndpointType {
	case endpointBrokers:
	case endpointControllers:
		answer.ErrorCode = int16(kafka.ErrMismatchedEndpointType)
		answer.ErrorMessage = text("The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		return answer
	default:
		answer.ErrorCode = int16(kafka.ErrUnsupportedEndpointType)
		answer.ErrorMessage = text("Unsupported endpoint type " + strconv.Itoa(int(q.EndpointType)))
		return answer
	}
	image := b.opts.Image()
	answer.EndpointType, answer.ClusterID, answer.ControllerID = endpointBrokers, b.opts.ClusterID, int32(b.opts.NodeID)
	for id, r := range image.Brokers.All() {
		if e := listenerOf(r, c.Listener()); e != nil && (!r.Fenced || q.IncludeFencedBrokers) {
			k := kmsg.NewDescribeClusterResponseBroker()
			k.NodeID, k.Host, k.Port, k.Rack, k.IsFenced = int32(id), e.Host, int32(e.Port), r.Rack, r.Fenced
			answer.Brokers = append(answer.Brokers, k)
		}
	}
	if q.IncludeClusterAuthorizedOperations {
		answer.ClusterAuthorizedOperations = allClusterOperations
	}
	return answer
}

// listenerOf is a broker's endpoint of a listener; nil when it does not have it.
func listenerOf(r *metadata.Broker, listener string) *metadata.Endpoint {
	for i := range r.Endpoints {
		if r.Endpoints[i].Name == listener {
			return &r.Endpoints[i]
		}
	}
	return nil
}

func text(s string) *string { return &s }
