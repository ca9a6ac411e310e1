package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/bench/floor"
)

// kafkaHeap is what bin/kafka-server-start.sh of Apache Kafka sets when nobody says otherwise.
var kafkaHeap = []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

// prepareKafka fetches Apache Kafka once and returns the class path of its broker; empty without Java or when
// it was not asked for.
func prepareKafka(o options) (classPath string, err error) {
	switch o.kafka {
	case "no":
		return "", nil
	case "auto":
		if _, err := exec.LookPath("java"); err != nil {
			return "", nil
		}
	}
	out, err := exec.Command(kafkaScript, "classpath").Output()
	if err != nil {
		if o.kafka == "auto" {
			return "", nil
		}
		return "", fmt.Errorf("%s classpath: %w", kafkaScript, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// kafkaScript runs a real Apache Kafka and its tools.
const kafkaScript = "../e2e/kafka/kafka"

// startKafka runs Apache Kafka on an empty directory, or again on one that it has used. It does not wait for
// the broker to listen.
func startKafka(classPath, dir string, core int, settings ...string) (*broker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	format := exec.Command(kafkaScript, append([]string{"format", dir, strconv.Itoa(port)}, settings...)...)
	if out, err := format.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format for Apache Kafka: %w: %s", err, out)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, err
	}
	config, err := filepath.Abs(filepath.Join(filepath.Dir(kafkaScript), "log4j2.properties"))
	if err != nil {
		return nil, err
	}
	args := append([]string{java}, kafkaHeap...)
	args = append(args, "-cp", classPath, "-Dlog4j2.configurationFile="+config, "kafka.Kafka", filepath.Join(dir, "server.properties"))
	b, err := launch(dir+".log", core, os.Environ(), args...)
	if err != nil {
		return nil, err
	}
	b.dir, b.port, b.foreign = filepath.Join(dir, "data"), port, true
	return b, nil
}

// rigOf puts a load generator beside a running broker.
func rigOf(b *broker, p floor.Placement) (*rig, error) {
	r := &rig{broker: b}
	var err error
	if r.control, err = b.wait(); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	r.load, err = floor.Spawn(p.Load, 0, "child:load-broker")
	return r, err
}

// beside measures the same cases on Apache Kafka with floors of its own in between, and puts them beside the
// figures of varve. One broker runs at a time: two would share caches and the collector's threads.
func beside(o options, r *report, cases []loadCase, figures []figure) (err error) {
	same := r.env.Placements()[0]
	bare, err := r.env.Rig(same)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()
	b, err := startKafka(o.classPath, filepath.Join(o.dir, "kafka"), same.Server)
	if err != nil {
		return err
	}
	kafka, err := rigOf(b, same)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.stop()) }()
	runs, err := prepare(kafka, cases)
	if err != nil {
		return fmt.Errorf("Apache Kafka: %w", err)
	}
	for round := -2; round < r.env.Rounds; round++ { // two rounds: a JVM compiles what it has often run
		for i := range runs {
			var f figure
			if err := runs[i].once(kafka, bare, &f, round >= 0); err != nil {
				return fmt.Errorf("Apache Kafka, %s: %w", runs[i].name, err)
			}
			figures[i].Kafka = append(figures[i].Kafka, f.Varve...)
			figures[i].KafkaFloor = append(figures[i].KafkaFloor, f.Floor...)
			figures[i].KafkaP50 = append(figures[i].KafkaP50, f.P50...)
			figures[i].KafkaP99 = append(figures[i].KafkaP99, f.P99...)
		}
	}
	return nil
}
