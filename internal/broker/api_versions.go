package broker

// ApiVersions (key 18), versions 0 to 5: throttle time from 1; software name and
// version, features as tagged fields, and flexible from 3 (KIP-511, KIP-584);
// features whose lowest level is 0 only from 4 (KIP-1022); cluster and node id
// from 5 (KIP-1242). The response always has header version 0, and a version
// nobody knows is answered in the form of version 0 with error 35, so that every
// client can learn what there is.
//
// The answer to a sound request depends on the version and on the finalized
// features alone: it is encoded once for each metadata image.

import (
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/wire"
)

const apiVersionsMax = 5

// versionsCache holds encoded answers by version for one image.
type versionsCache struct {
	image  *metadata.Image
	bodies [apiVersionsMax + 1]atomic.Pointer[[]byte]
}

func (b *Broker) apiVersions(c *Context) (server.Verdict, error) {
	if c.Version < 0 || c.Version > apiVersionsMax {
		answer := kmsg.NewPtrApiVersionsResponse()
		answer.ErrorCode = int16(kafka.ErrUnsupportedVersion)
		answer.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: wire.APIVersionsKey, MinVersion: 0, MaxVersion: apiVersionsMax}}
		c.Request.Out.Message(answer)
		return server.Reply, nil
	}
	code, err := b.checkVersionsRequest(c)
	if err != nil {
		return server.Close, err
	}
	if code != kafka.None {
		answer := kmsg.NewPtrApiVersionsResponse()
		answer.Version, answer.ErrorCode = c.Version, int16(code)
		c.Request.Out.Message(answer)
		return server.Reply, nil
	}
	c.Request.Out.Raw(b.versionsBody(c.Version))
	return server.Reply, nil
}

// checkVersionsRequest reads what the client says of itself. The error is about
// bytes that cannot be parsed.
func (b *Broker) checkVersionsRequest(c *Context) (kafka.ErrorCode, error) {
	if c.Version < 3 {
		return kafka.None, nil
	}
	r := wire.NewReader(c.Request.Body, true)
	name, version := r.String(), r.String()
	var clusterID []byte
	nodeID := int32(-1)
	if c.Version >= 5 {
		clusterID, nodeID = r.NullableString(), r.Int32()
	}
	r.SkipTags()
	if err := r.Err(); err != nil {
		return kafka.None, fmt.Errorf("ApiVersions request v%d: %w", c.Version, err)
	}
	if !isSoftwareText(name) || !isSoftwareText(version) {
		return kafka.ErrInvalidRequest, nil
	}
	switch {
	case clusterID == nil && nodeID == -1:
	case clusterID == nil || nodeID == -1:
		return kafka.ErrInvalidRequest, nil
	case string(clusterID) != b.opts.ClusterID || kafka.BrokerID(nodeID) != b.opts.NodeID:
		return kafka.ErrRebootstrapRequired, nil
	}
	if s := c.Request.Conn.Software(); s.Name != string(name) || s.Version != string(version) {
		c.Request.Conn.SetSoftware(server.Software{Name: string(name), Version: string(version)})
	}
	return kafka.None, nil
}

// isSoftwareText reports whether s matches [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
// (ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN).
func isSoftwareText(s []byte) bool {
	for i, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return len(s) > 0
}

// versionsBody is the encoded answer for a version.
func (b *Broker) versionsBody(version int16) []byte {
	image := b.opts.Image()
	cache := b.versionsSeen.Load()
	if cache == nil || cache.image != image {
		cache = &versionsCache{image: image}
		b.versionsSeen.Store(cache)
	}
	if body := cache.bodies[version].Load(); body != nil {
		return *body
	}
	body := b.versionsAnswer(image, version).AppendTo(nil)
	cache.bodies[version].Store(&body)
	return body
}

func (b *Broker) versionsAnswer(image *metadata.Image, version int16) *kmsg.ApiVersionsResponse {
	answer := kmsg.NewPtrApiVersionsResponse()
	answer.Version = version
	for _, a := range b.versions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		if a.key == wire.ProduceKey {
			// Versions 0 to 2 are refused, yet librdkafka compresses only when one of
			// them is offered (KAFKA-18659).
			k.MinVersion = 0
		}
		answer.ApiKeys = append(answer.ApiKeys, k)
	}
	if version < 3 {
		return answer
	}
	for _, f := range metadata.SupportedFeatures() {
		if version == 3 && f.Min == 0 {
			continue // clients of that time take a minimum of 0 for an error
		}
		k := kmsg.NewApiVersionsResponseSupportedFeature()
		k.Name, k.MinVersion, k.MaxVersion = f.Name, f.Min, f.Max
		answer.SupportedFeatures = append(answer.SupportedFeatures, k)
	}
	answer.FinalizedFeaturesEpoch = int64(image.End) - 1
	for name, level := range image.Features.All() {
		k := kmsg.NewApiVersionsResponseFinalizedFeature()
		k.Name, k.MinVersionLevel, k.MaxVersionLevel = name, level, level
		answer.FinalizedFeatures = append(answer.FinalizedFeatures, k)
	}
	return answer
}
