package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// ValueError is a value that its key does not take. Its text is the one that
// Kafka's ConfigException has.
type ValueError struct {
	Key    string
	Value  string
	Reason string // empty when Text is set
	Text   string // the whole message, for the checks that Kafka words in their own way
}

// Error implements error.
func (e *ValueError) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return "Invalid value " + e.Value + " for configuration " + e.Key + ": " + e.Reason
}

// Check parses a value as ConfigDef.parseType does, checks its range, and
// returns it in normal form: what DescribeConfigs shows. The error is a
// *ValueError.
func (k Key) Check(value string) (string, error) {
	normal, err := k.parse(value)
	if err != nil {
		return "", err
	}
	if err := k.validate(normal); err != nil {
		return "", err
	}
	return normal, nil
}

func (k Key) refused(value, format string, args ...any) error {
	return &ValueError{Key: k.Name, Value: value, Reason: fmt.Sprintf(format, args...)}
}

// parse applies the type alone.
func (k Key) parse(value string) (string, error) {
	trimmed := trimJava(value)
	switch k.Type {
	case TypeBoolean:
		switch {
		case strings.EqualFold(trimmed, "true"):
			return "true", nil
		case strings.EqualFold(trimmed, "false"):
			return "false", nil
		}
		return "", k.refused(value, "Expected value to be either true or false")
	case TypeShort:
		return k.parseInteger(value, trimmed, 16)
	case TypeInt:
		return k.parseInteger(value, trimmed, 32)
	case TypeLong:
		return k.parseInteger(value, trimmed, 64)
	case TypeDouble:
		f, err := strconv.ParseFloat(strings.TrimRight(trimmed, "dDfF"), 64)
		if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(trimmed, "_xX") {
			return "", k.refused(value, "Not a number of type DOUBLE")
		}
		return formatDouble(f), nil
	case TypeList:
		return strings.Join(SplitList(value), ","), nil
	case TypePassword:
		return value, nil
	}
	return trimmed, nil
}

func (k Key) parseInteger(value, trimmed string, bits int) (string, error) {
	n, err := strconv.ParseInt(trimmed, 10, bits)
	if err != nil {
		return "", k.refused(value, "Not a number of type %s", strings.ToUpper(k.Type.String()))
	}
	return strconv.FormatInt(n, 10), nil
}

// validate applies the valid values to a value in normal form.
func (k Key) validate(normal string) error {
	if k.Type == TypeList && normal == "" && refusesEmptyList(k.Name) {
		valid := k.Valid
		if valid == "" {
			valid = "any non-empty value"
		}
		return &ValueError{Key: k.Name, Text: "Configuration '" + k.Name + "' must not be empty. Valid values include: " + valid}
	}
	switch {
	case k.Valid == "" || k.Valid == "non-null string" || k.Valid == "non-empty list":
		return nil
	case k.Valid == "non-empty string":
		if normal == "" {
			return k.refused(normal, "String must be non-empty")
		}
		return nil
	case strings.HasPrefix(k.Valid, "[partitionId]"):
		return k.validateThrottled(normal)
	case k.Name == "share.auto.offset.reset":
		return k.validateOffsetReset(normal)
	case strings.HasPrefix(k.Valid, "(case insensitive) "):
		return k.validateWord(normal, strings.TrimPrefix(k.Valid, "(case insensitive) "), true)
	case strings.Contains(k.Valid, ",..."):
		return k.validateRange(normal)
	}
	return k.validateWord(normal, k.Valid, false)
}

func (k Key) validateWord(normal, valid string, anyCase bool) error {
	words := strings.Split(strings.Trim(valid, "[]"), ", ")
	values := []string{normal}
	if k.Type == TypeList {
		values = SplitList(normal)
	}
	for _, v := range values {
		if k.Type == TypeList && v == "" {
			return &ValueError{Key: k.Name, Text: "Configuration '" + k.Name + "' values must not be empty."}
		}
		found := false
		for _, w := range words {
			found = found || v == w || anyCase && strings.EqualFold(v, w)
		}
		if !found {
			kind := "String must be one of: "
			if anyCase {
				kind = "String must be one of (case insensitive): "
			}
			return k.refused(v, "%s%s", kind, strings.Join(words, ", "))
		}
	}
	return nil
}

// bounds reads "[1,...]", "[0,...,1]" and "[1,...,9] or -1".
func (k Key) bounds() (low, high float64, or string) {
	valid, or, _ := strings.Cut(k.Valid, " or ")
	low, high = math.Inf(-1), math.Inf(1)
	parts := strings.Split(strings.Trim(valid, "[]"), ",")
	if parts[0] != "..." {
		low, _ = strconv.ParseFloat(parts[0], 64)
	}
	if last := parts[len(parts)-1]; last != "..." {
		high, _ = strconv.ParseFloat(last, 64)
	}
	return low, high, or
}

// validateRange compares as floats: the bounds of the table are small enough to
// be exact, and rounding keeps an int64 on its side of them.
func (k Key) validateRange(normal string) error {
	low, high, or := k.bounds()
	v, _ := strconv.ParseFloat(normal, 64)
	if or != "" {
		if normal != or && (v < low || v > high) {
			return k.refused(normal, "Value must be between %s and %s or equal to %s", formatBound(low), formatBound(high), or)
		}
		return nil
	}
	if v < low {
		return k.refused(normal, "Value must be at least %s", formatBound(low))
	}
	if v > high {
		return k.refused(normal, "Value must be no more than %s", formatBound(high))
	}
	return nil
}

func formatBound(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

var throttledReplica = regexp.MustCompile(`^([0-9]+:[0-9]+)?$`)

func (k Key) validateThrottled(normal string) error {
	if normal == "*" || normal == "" {
		return nil
	}
	items := SplitList(normal)
	for _, item := range items {
		if !throttledReplica.MatchString(item) {
			return &ValueError{Key: k.Name, Text: "Invalid value [" + strings.Join(items, ", ") + "] for configuration " + k.Name +
				": " + k.Name + " must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."}
		}
	}
	return nil
}

var isoDuration = regexp.MustCompile(`^P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?$`)

func (k Key) validateOffsetReset(normal string) error {
	lower := strings.ToLower(normal)
	if lower == "latest" || lower == "earliest" {
		return nil
	}
	if d, ok := strings.CutPrefix(lower, "by_duration:"); ok {
		if d = strings.ToUpper(d); isoDuration.MatchString(d) && strings.ContainsAny(d, "0123456789") {
			return nil
		}
		return k.refused(normal, "Unable to parse duration string in share group auto offset reset strategy.")
	}
	return k.refused(normal, "Invalid share group auto offset reset strategy: %s", normal)
}

// refusesEmptyList names the list keys that Kafka declares with
// ValidList.anyNonDuplicateValues(false, …) or ValidList.in(false, …).
func refusesEmptyList(name string) bool {
	switch name {
	case "listeners", "advertised.listeners", "log.dir", "log.dirs", "controller.listener.names",
		"process.roles", "group.coordinator.rebalance.protocols", "group.consumer.assignors":
		return true
	}
	return false
}

// SplitList splits a list value at its commas, trims the members and drops
// repeated ones, keeping the first. An empty value is an empty list.
func SplitList(value string) []string {
	members, _ := splitList(value)
	return members
}

func splitList(value string) (members []string, repeated bool) {
	trimmed := trimJava(value)
	if trimmed == "" {
		return nil, false
	}
	seen := map[string]bool{}
	for _, m := range strings.Split(trimmed, ",") {
		m = trimJava(m)
		if seen[m] {
			repeated = true
			continue
		}
		seen[m] = true
		members = append(members, m)
	}
	return members, repeated
}

// trimJava is String.trim: everything up to and including the blank goes.
func trimJava(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}

// formatDouble renders a number as Java's Double.toString does.
func formatDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0.0"
	}
	if a := math.Abs(f); a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	sign := ""
	if exponent[0] == '-' {
		sign = "-"
	}
	return mantissa + "E" + sign + strings.TrimLeft(exponent[1:], "0")
}
