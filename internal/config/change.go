package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ChangeError is a setting that cannot be changed to what a client asks for.
// Its text is Kafka's.
type ChangeError struct {
	Keys    []string
	Message string
	// Request reports that the request itself is wrong (INVALID_REQUEST); else
	// it is the value (INVALID_CONFIG).
	Request bool
}

// Error implements error.
func (e *ChangeError) Error() string { return e.Message }

// CheckBrokerChange checks values that a client wants to set while the broker
// runs: for one broker, or for all when perBroker is false. Unknown keys pass,
// as in Kafka, which stores them. The error is a *ChangeError.
func CheckBrokerChange(values map[string]string, perBroker bool) error {
	var readOnly, perBrokerOnly []string
	for _, name := range sortedNames(values) {
		switch k := describedKey(name); {
		case k.Type == TypeUnknown || k.Scope == ScopeBrokerDynamic:
		case k.Mode == ReadOnly:
			readOnly = append(readOnly, name)
		case k.Mode == PerBroker && !perBroker:
			perBrokerOnly = append(perBrokerOnly, name)
		}
	}
	if len(readOnly) > 0 {
		return &ChangeError{readOnly, "Cannot update these configs dynamically: [" + strings.Join(readOnly, ", ") + "]", true}
	}
	if len(perBrokerOnly) > 0 {
		return &ChangeError{perBrokerOnly, "Cannot update these configs at default cluster level, broker id must be specified: [" + strings.Join(perBrokerOnly, ", ") + "]", true}
	}
	for _, name := range sortedNames(values) {
		if why := reachesHost(name, values[name]); why != "" {
			return &ChangeError{[]string{name}, "Invalid value for configuration " + name + ": " + why, false}
		}
		k := describedKey(name)
		if k.Type == TypeUnknown {
			continue
		}
		normal, err := k.Check(values[name])
		if err == nil && name == "log.cleaner.threads" && mustInt(name, normal) < 1 {
			err = k.refused(normal, "Value must be at least 1") // Kafka 4.4.0 divides by it
		}
		if err != nil {
			return &ChangeError{[]string{name}, err.Error(), true}
		}
	}
	return nil
}

// reachesHost says why a client may not set a key while the broker runs: it
// would name code to load, or a file or address to open, on the broker's host
// (CVE-2023-25194 and its kind). Kafka's own classes load nothing here and pass.
// The prefixes of listeners and SASL mechanisms do not matter.
func reachesHost(name, value string) string {
	ends := func(suffixes ...string) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool { return name == s || strings.HasSuffix(name, "."+s) })
	}
	switch {
	case value == "":
		return ""
	case ends("jaas.config", "keystore.location", "truststore.location", "class.path", "providers", "ssl.provider", "token.endpoint.url", "jwks.endpoint.url"):
		return "files, addresses and login modules are set in the broker's file alone"
	case ends("class", "class.name", "reporters"):
		for _, class := range strings.Split(value, ",") {
			if class = strings.TrimPrefix(strings.TrimSpace(class), "class "); !strings.HasPrefix(class, "org.apache.kafka.") {
				return "varve loads no Java classes"
			}
		}
	}
	return ""
}

// CheckGroupKey checks one setting of a group against the table and the
// broker's own limits. The error is a *ChangeError.
func (b *Broker) CheckGroupKey(name, value string) error {
	k, ok := Lookup(ScopeGroup, name)
	if !ok {
		return &ChangeError{[]string{name}, "Unknown group config name: " + name, false}
	}
	normal, err := k.Check(value)
	if err != nil {
		return &ChangeError{[]string{name}, err.Error(), false}
	}
	kind, what, _ := strings.Cut(name, ".")
	low, high := "group."+kind+".min."+what, "group."+kind+".max."+what
	if v, set := b.lookup(low); set && mustInt(name, normal) < mustInt(low, v) {
		return &ChangeError{[]string{name}, name + " must be greater than or equal to " + low, false}
	}
	if v, set := b.lookup(high); set && mustInt(name, normal) > mustInt(high, v) {
		return &ChangeError{[]string{name}, name + " must be less than or equal to " + high, false}
	}
	return nil
}

// CheckClientMetricsKey checks one setting of a client-metrics subscription.
// The error is a *ChangeError.
func CheckClientMetricsKey(name, value string) error {
	k, ok := Lookup(ScopeClientMetrics, name)
	if !ok {
		return &ChangeError{[]string{name}, "Unknown client metrics configuration: " + name, true}
	}
	normal, err := k.Check(value)
	if err != nil {
		return &ChangeError{[]string{name}, err.Error(), true}
	}
	if name == "interval.ms" {
		if n, err := strconv.Atoi(normal); err != nil || n < 100 || n > 3_600_000 {
			return &ChangeError{[]string{name}, fmt.Sprintf("Invalid value %s for interval.ms, interval must be between 100 and 3600000 (1 hour)", normal), true}
		}
	}
	return nil
}
