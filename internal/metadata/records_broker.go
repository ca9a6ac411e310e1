package metadata

import "github.com/varvelog/varve/internal/kafka"

// Endpoint is where a broker or controller listens, as clients should see it.
type Endpoint struct {
	Name             string // of the listener
	Host             string
	Port             uint16
	SecurityProtocol int16 // 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

func (e *Endpoint) walk(c codec) {
	c.string("name", &e.Name)
	c.string("host", &e.Host)
	c.uint16("port", &e.Port)
	c.int16("securityProtocol", &e.SecurityProtocol)
}

// FeatureRange is the span of levels of a feature that a node supports.
type FeatureRange struct {
	Name string
	Min  int16
	Max  int16
}

func (f *FeatureRange) walk(c codec) {
	c.string("name", &f.Name)
	c.int16("minSupportedVersion", &f.Min)
	c.int16("maxSupportedVersion", &f.Max)
}

func walkEndpoint(c codec, e *Endpoint)    { e.walk(c) }
func walkFeature(c codec, f *FeatureRange) { f.walk(c) }

// RegisterBrokerRecord registers a broker, fenced until it has caught up.
type RegisterBrokerRecord struct {
	BrokerID             kafka.BrokerID
	IsMigratingZkBroker  bool // since version 2
	IncarnationID        kafka.UUID
	BrokerEpoch          int64
	Endpoints            []Endpoint
	Features             []FeatureRange
	Rack                 *string // nil: none
	Fenced               bool
	InControlledShutdown bool         // since version 1
	LogDirs              []kafka.UUID // since version 3
	CordonedLogDirs      []kafka.UUID // since version 4; nil: not known
}

// Type is TypeRegisterBroker.
func (*RegisterBrokerRecord) Type() RecordType { return TypeRegisterBroker }

func (r *RegisterBrokerRecord) walk(c codec, version int16) {
	brokerID(c, "brokerId", &r.BrokerID)
	if version >= 2 {
		c.bool("isMigratingZkBroker", &r.IsMigratingZkBroker)
	}
	c.uuid("incarnationId", &r.IncarnationID)
	c.int64("brokerEpoch", &r.BrokerEpoch)
	walkSlice(c, "endPoints", &r.Endpoints, walkEndpoint)
	walkSlice(c, "features", &r.Features, walkFeature)
	c.nullString("rack", &r.Rack)
	c.bool("fenced", &r.Fenced)
	if version >= 1 {
		c.bool("inControlledShutdown", &r.InControlledShutdown)
	}
	if version >= 3 {
		c.tagged(0, len(r.LogDirs) > 0, func() { c.uuids("logDirs", &r.LogDirs, false) })
	}
	if version >= 4 {
		c.tagged(1, r.CordonedLogDirs != nil, func() { c.uuids("cordonedLogDirs", &r.CordonedLogDirs, true) })
	}
}

// UnregisterBrokerRecord removes a broker from the cluster.
type UnregisterBrokerRecord struct {
	BrokerID    kafka.BrokerID
	BrokerEpoch int64
}

// Type is TypeUnregisterBroker.
func (*UnregisterBrokerRecord) Type() RecordType { return TypeUnregisterBroker }

func (r *UnregisterBrokerRecord) walk(c codec, _ int16) {
	brokerID(c, "brokerId", &r.BrokerID)
	c.int64("brokerEpoch", &r.BrokerEpoch)
}

// FenceBrokerRecord fences a broker; written by releases before 3.3.
type FenceBrokerRecord struct {
	BrokerID    kafka.BrokerID
	BrokerEpoch int64
}

// Type is TypeFenceBroker.
func (*FenceBrokerRecord) Type() RecordType { return TypeFenceBroker }

func (r *FenceBrokerRecord) walk(c codec, _ int16) {
	brokerID(c, "id", &r.BrokerID)
	c.int64("epoch", &r.BrokerEpoch)
}

// UnfenceBrokerRecord ends the fencing; written by releases before 3.3.
type UnfenceBrokerRecord struct {
	BrokerID    kafka.BrokerID
	BrokerEpoch int64
}

// Type is TypeUnfenceBroker.
func (*UnfenceBrokerRecord) Type() RecordType { return TypeUnfenceBroker }

func (r *UnfenceBrokerRecord) walk(c codec, _ int16) {
	brokerID(c, "id", &r.BrokerID)
	c.int64("epoch", &r.BrokerEpoch)
}

// Switch turns a flag on or off, or leaves it (BrokerRegistrationFencingChange).
type Switch = int8

// The values of a Switch.
const (
	SwitchOff  Switch = -1
	SwitchKeep Switch = 0
	SwitchOn   Switch = 1
)

// BrokerRegistrationChangeRecord changes parts of a broker's registration.
type BrokerRegistrationChangeRecord struct {
	BrokerID             kafka.BrokerID
	BrokerEpoch          int64
	Fenced               Switch
	InControlledShutdown Switch       // since version 1
	LogDirs              []kafka.UUID // since version 2; empty: unchanged
	CordonedLogDirs      []kafka.UUID // since version 3; nil: unchanged
}

// Type is TypeBrokerRegistrationChange.
func (*BrokerRegistrationChangeRecord) Type() RecordType { return TypeBrokerRegistrationChange }

func (r *BrokerRegistrationChangeRecord) walk(c codec, version int16) {
	brokerID(c, "brokerId", &r.BrokerID)
	c.int64("brokerEpoch", &r.BrokerEpoch)
	c.tagged(0, r.Fenced != SwitchKeep, func() { c.int8("fenced", &r.Fenced) })
	if version >= 1 {
		c.tagged(1, r.InControlledShutdown != SwitchKeep, func() { c.int8("inControlledShutdown", &r.InControlledShutdown) })
	}
	if version >= 2 {
		c.tagged(2, len(r.LogDirs) > 0, func() { c.uuids("logDirs", &r.LogDirs, false) })
	}
	if version >= 3 {
		c.tagged(3, r.CordonedLogDirs != nil, func() { c.uuids("cordonedLogDirs", &r.CordonedLogDirs, true) })
	}
}

// RegisterControllerRecord registers a controller.
type RegisterControllerRecord struct {
	ControllerID     kafka.BrokerID
	IncarnationID    kafka.UUID
	ZkMigrationReady bool
	Endpoints        []Endpoint
	Features         []FeatureRange
}

// Type is TypeRegisterController.
func (*RegisterControllerRecord) Type() RecordType { return TypeRegisterController }

func (r *RegisterControllerRecord) walk(c codec, _ int16) {
	brokerID(c, "controllerId", &r.ControllerID)
	c.uuid("incarnationId", &r.IncarnationID)
	c.bool("zkMigrationReady", &r.ZkMigrationReady)
	walkSlice(c, "endPoints", &r.Endpoints, walkEndpoint)
	walkSlice(c, "features", &r.Features, walkFeature)
}

// UnregisterControllerRecord removes a controller's registration (since 4.4-IV2).
type UnregisterControllerRecord struct {
	ControllerID kafka.BrokerID
}

// Type is TypeUnregisterController.
func (*UnregisterControllerRecord) Type() RecordType { return TypeUnregisterController }

func (r *UnregisterControllerRecord) walk(c codec, _ int16) {
	brokerID(c, "controllerId", &r.ControllerID)
}
