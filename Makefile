# Everything a developer types. Go and make are all that `make run` and `make test` need.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X github.com/varvelog/varve/internal/cli.Version=$(VERSION)
BIN      = bin/varve

.PHONY: all build run test race lint fuzz oracle bench bench-quick e2e mutants faults faults-long clean help

all: build

build: ## build bin/varve: one static binary, no cgo
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/varve

run: ## build and serve on 127.0.0.1:9092, data in ./data
	@echo 'building $(BIN); the first time takes a minute'
	@$(MAKE) -s build
	@exec ./$(BIN) serve --data-dir ./data --listen 127.0.0.1:9092

test: ## everything that needs Go alone
	$(GO) vet ./...
	$(GO) test ./...

race: ## the same tests under the race detector, with invariants checked and fewer random seeds
	$(GO) test -race -short -tags invariants ./...

lint: ## gofmt, go vet and golangci-lint (pinned in tools/go.mod)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

FUZZTIME ?= 5s
fuzz: ## every fuzz target for FUZZTIME each
	@./.ci/fuzz $(FUZZTIME)

OPS  ?= 100000
SEED ?= 1
oracle: ## seeded random operations on the log against a model in memory
	$(GO) test ./internal/logtest -run TestLogAgainstModel -v -count=1 -timeout 60m -args -oracle.ops=$(OPS) -oracle.seed=$(SEED)

bench: build ## the benchmark: pieces, and the binary beside the bare system calls
	@$(MAKE) -C bench bench

bench-quick: build ## a minute of it: the binary beside the bare system calls, ratios only
	@$(MAKE) -C bench quick

e2e: build ## foreign clients and Apache Kafka against the binary (needs Java, Python, Node; see e2e/README.md)
	cd e2e && bash -o pipefail -c '$(GO) vet ./... && $(GO) test ./soak && $(GO) test -count=1 -timeout 60m -parallel 3 -v . | grep --line-buffered -v "^=== "'

mutants: ## deliberate faults in the code, one at a time: the tests must notice (SOME=4 tries four)
	cd e2e && $(GO) run ./mutants -some $(or $(SOME),0)

SOAK ?= 2h
soak: build ## a small mixed load and restarts for SOAK: nothing lost, nothing grows (SOAK=90s to try; SOAK_ARGS, see e2e/soak)
	cd e2e && $(GO) run ./soak -for $(SOAK) $(SOAK_ARGS)

# FAULTS: more flags, as -rows kill,cuts -seed 7 (e2e/faults/README.md).
FAULTS ?=
faults: ## the fault harness, minutes: crashes, power cuts, full and broken disks (more of it as root), after a test of itself
	cd e2e && $(GO) run ./faults/scoreboard -self-test short && $(GO) run ./faults/scoreboard -scale short $(FAULTS)

faults-long: ## the same for hours, before a release
	cd e2e && $(GO) run ./faults/scoreboard -self-test long && $(GO) run ./faults/scoreboard -scale long $(FAULTS)

clean: ## remove what was built; ./data stays
	rm -rf bin

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10
