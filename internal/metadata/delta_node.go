package metadata

import (
	"strings"

	"github.com/varvelog/varve/internal/kafka"
)

// applyNode brings in the records of brokers, controllers, users and quotas.
func (d *Delta) applyNode(r Record) (reason string) {
	switch r := r.(type) {
	case *RegisterBrokerRecord:
		d.applyRegisterBroker(r)
	case *UnregisterBrokerRecord:
		return d.changeBroker(r.BrokerID, r.BrokerEpoch, func(b *Broker) *Broker { return nil })
	case *FenceBrokerRecord:
		return d.setFenced(r.BrokerID, r.BrokerEpoch, true)
	case *UnfenceBrokerRecord:
		return d.setFenced(r.BrokerID, r.BrokerEpoch, false)
	case *BrokerRegistrationChangeRecord:
		return d.changeBroker(r.BrokerID, r.BrokerEpoch, func(b *Broker) *Broker {
			apply(r.Fenced, &b.Fenced)
			apply(r.InControlledShutdown, &b.InControlledShutdown)
			if len(r.LogDirs) > 0 {
				b.LogDirs = r.LogDirs
			}
			if r.CordonedLogDirs != nil {
				b.CordonedLogDirs = r.CordonedLogDirs
			}
			return b
		})
	case *RegisterControllerRecord:
		d.next.Controllers = d.next.Controllers.Set(r.ControllerID, &Controller{
			ID:               r.ControllerID,
			IncarnationID:    r.IncarnationID,
			ZkMigrationReady: r.ZkMigrationReady,
			Endpoints:        r.Endpoints,
			Features:         r.Features,
		})
	case *UnregisterControllerRecord:
		d.next.Controllers = d.next.Controllers.Delete(r.ControllerID)
	default:
		d.applyUser(r)
	}
	return ""
}

// applyUser brings in credentials, ACLs, tokens and quotas. What is left (NoOp,
// the marks of a transaction, the migration state of old releases) changes
// nothing in an image.
func (d *Delta) applyUser(r Record) {
	switch r := r.(type) {
	case *UserScramCredentialRecord:
		d.next.Scram = d.next.Scram.Set(ScramUser{r.Name, r.Mechanism}, r)
	case *RemoveUserScramCredentialRecord:
		d.next.Scram = d.next.Scram.Delete(ScramUser{r.Name, r.Mechanism})
	case *AccessControlEntryRecord:
		d.next.ACLs = d.next.ACLs.Set(r.ID, r)
	case *RemoveAccessControlEntryRecord:
		d.next.ACLs = d.next.ACLs.Delete(r.ID)
	case *DelegationTokenRecord:
		d.next.Tokens = d.next.Tokens.Set(r.TokenID, r)
	case *RemoveDelegationTokenRecord:
		d.next.Tokens = d.next.Tokens.Delete(r.TokenID)
	case *ClientQuotaRecord:
		d.applyQuota(r)
	}
}

func (d *Delta) applyRegisterBroker(r *RegisterBrokerRecord) {
	d.brokers[r.BrokerID] = true
	d.next.Brokers = d.next.Brokers.Set(r.BrokerID, &Broker{
		ID:                   r.BrokerID,
		IncarnationID:        r.IncarnationID,
		Epoch:                r.BrokerEpoch,
		Endpoints:            r.Endpoints,
		Features:             r.Features,
		Rack:                 r.Rack,
		Fenced:               r.Fenced,
		InControlledShutdown: r.InControlledShutdown,
		LogDirs:              r.LogDirs,
		CordonedLogDirs:      r.CordonedLogDirs,
		migratingZk:          r.IsMigratingZkBroker,
	})
}

func apply(s Switch, flag *bool) {
	if s != SwitchKeep {
		*flag = s == SwitchOn
	}
}

func (d *Delta) setFenced(id kafka.BrokerID, epoch int64, fenced bool) string {
	return d.changeBroker(id, epoch, func(b *Broker) *Broker {
		b.Fenced = fenced
		return b
	})
}

// changeBroker replaces a registration by what change makes of a copy; nil
// removes it. The epoch must be the registered one.
func (d *Delta) changeBroker(id kafka.BrokerID, epoch int64, change func(*Broker) *Broker) (reason string) {
	old, ok := d.next.Brokers.Get(id)
	if !ok {
		return "no such broker"
	}
	if old.Epoch != epoch {
		return "not the registered broker epoch"
	}
	d.brokers[id] = true
	b := *old
	if next := change(&b); next != nil {
		d.next.Brokers = d.next.Brokers.Set(id, next)
	} else {
		d.next.Brokers = d.next.Brokers.Delete(id)
	}
	return ""
}

func (d *Delta) applyQuota(r *ClientQuotaRecord) {
	key := QuotaKey(r.Entity)
	quota := &Quota{Entity: r.Entity, Values: newMap[string, float64](strings.Compare)}
	if old, ok := d.next.Quotas.Get(key); ok {
		quota.Values = old.Values
	}
	if r.Remove {
		quota.Values = quota.Values.Delete(r.Key)
	} else {
		quota.Values = quota.Values.Set(r.Key, r.Value)
	}
	if quota.Values.Len() == 0 {
		d.next.Quotas = d.next.Quotas.Delete(key)
	} else {
		d.next.Quotas = d.next.Quotas.Set(key, quota)
	}
}
