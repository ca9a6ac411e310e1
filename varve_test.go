package varve_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve"
)

func Example() {
	dir, err := os.MkdirTemp("", "varve")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	b, err := varve.Start(ctx, varve.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer b.Stop(ctx)
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("greetings"))
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "greetings", Value: []byte("hello")}).FirstErr(); err != nil {
		panic(err)
	}
	for _, r := range c.PollFetches(ctx).Records() {
		fmt.Printf("%s at offset %d\n", r.Value, r.Offset)
	}
	// Output: hello at offset 0
}

func TestStartNamesEveryWrongSetting(t *testing.T) {
	_, err := varve.Start(context.Background(), varve.Options{Dir: t.TempDir(), Settings: map[string]string{"num.partitions": "many", "log.segment.bytes": "1"}})
	if err == nil || !strings.Contains(err.Error(), "num.partitions") || !strings.Contains(err.Error(), "log.segment.bytes") {
		t.Errorf("Start = %v, want both settings named", err)
	}
}

func TestStartNeedsADirectory(t *testing.T) {
	if _, err := varve.Start(context.Background(), varve.Options{}); err == nil || !strings.Contains(err.Error(), "Dir is empty") {
		t.Errorf("Start = %v, want an error about Dir", err)
	}
}
