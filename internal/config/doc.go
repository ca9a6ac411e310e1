// Package config turns server.properties files, environment variables and
// flags into one checked Broker, and a topic's settings into one checked Topic.
//
// Keys are Kafka's, with Kafka's names, types, defaults and error texts; the
// table of all of them is keys.tsv. What is varve's own begins with "varve.".
// The package reads no file, no environment and no clock: its callers hand over
// bytes. It comes first in the start of a broker; metadata and controller use
// it to check and describe the settings that clients change while it runs.
package config
