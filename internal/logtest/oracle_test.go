package logtest

import (
	"flag"
	"testing"
)

var (
	oracleOps   = flag.Int("oracle.ops", 5000, "operations a seed")
	oracleSeed  = flag.Uint64("oracle.seed", 0, "run this seed alone")
	oracleSeeds = flag.Int("oracle.seeds", 4, "how many seeds, from 1 on")
)

// TestLogAgainstModel does random operations on a log and on a slice and wants
// the same answers. A failure prints its seed: -oracle.seed=N repeats it.
func TestLogAgainstModel(t *testing.T) {
	if *oracleSeed != 0 {
		if err := Run(*oracleSeed, *oracleOps); err != nil {
			t.Fatal(err)
		}
		return
	}
	for seed := range uint64(*oracleSeeds) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed+1)
			if err := Run(seed+1, *oracleOps/(*oracleSeeds)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
