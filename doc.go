// Package varve runs a broker inside a Go program or test: the same broker as
// the varve command, on a directory of Apache Kafka's format, reachable by any
// Kafka client.
//
//	b, err := varve.Start(ctx, varve.Options{Dir: t.TempDir()})
//	…
//	defer b.Stop(ctx)
//	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
package varve
