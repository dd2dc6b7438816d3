# make help lists the targets.
GO      ?= go
# Of the newest tag; where there is no git, the Go tool's own record is used.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# Not LINT, which make has a value for.
GOLANGCI ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# See RATIONALE.md for the version.
NFPM ?= $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
BENCHSTAT ?= $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
FUZZTIME ?= 5m
# Where make bench writes its rounds, and how many there are.
NEW    ?= bench/results/$(or $(VERSION),here).txt
ROUNDS ?= 10
# More flags for go test, such as -v.
TESTFLAGS ?=

# Tested with the race detector. arch has no state to race for; the others hold
# live processes, where its slowness hides more races than it finds: of those only tests of it.
RACE := ./arch/... ./internal/door ./cmd/gokprobe/internal/event ./patch/... ./trampoline/... ./symbols/... ./internal/procfs ./internal/layers ./internal/testprog

# The files of which make bench says how much takes optimized probes.
COVERED ?= $(wildcard $(addprefix /lib/x86_64-linux-gnu/,libc.so.6 libcrypto.so.3 libstdc++.so.6)) \
	$(shell python3 -c 'print(*{l.split()[-1] for l in open("/proc/self/maps") if " r-xp " in l and "python" in l and "dynload" not in l})' 2>/dev/null) \
	bin/gokprobe

.PHONY: help build man deb rpm apk demo quick test setup-test check torture torture-long torture-load torture-uprobes bench bench-compare fuzz examples clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r t d; do printf '  make %-12s %s\n' "$$t" "$$d"; done

build: ## build bin/gokprobe
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/gokprobe ./cmd/gokprobe

man: build ## write the man pages to build/man
	bin/gokprobe man build/man

deb: build ## make a package for Debian and its kin in dist
	NFPM='$(NFPM)' scripts/package deb '$(VERSION)'

rpm: build ## make a package for Fedora, SUSE and their kin in dist
	NFPM='$(NFPM)' scripts/package rpm '$(VERSION)'

apk: build ## make a package for Alpine in dist
	NFPM='$(NFPM)' scripts/package apk '$(VERSION)'

demo: build ## probe a bundled sample program, live
	bin/gokprobe demo

setup-test: ## install what the tests use, if this is root on a Debian
	@scripts/setup-test

quick: ## run the tests of pure rooms, and some of live processes: a minute
	@scripts/quick $(TESTFLAGS)

test: SHELL := bash
test: setup-test ## run all tests, and list the slowest
	set -o pipefail; { status=0; \
	$(GO) test -json -count=1 -race -timeout 25m $(TESTFLAGS) $(RACE) || status=1; \
	$(GO) test -json -count=1 -race -timeout 10m $(TESTFLAGS) -run MayBeReadWhile ./kprobes || status=1; \
	$(GO) test -json -count=1 -timeout 40m $(TESTFLAGS) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACE))") || status=1; \
	exit $$status; } | $(GO) run ./internal/slowest $(filter -v,$(TESTFLAGS))

check: ## check formatting, vet, lint, go.mod, and the import table
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GOLANGCI) run
	$(GO) mod tidy -diff
	$(GO) test -count=1 ./internal/layers

torture: torture-long torture-load torture-uprobes ## run all tests with the long torments, at a load of 40, and beside kernel uprobes: hours

torture-long: ## run all tests with the long torments, up to two hours
	GOKPROBE_TORTURE=1 $(GO) test -count=1 -timeout 2h $(TESTFLAGS) ./...

torture-load: ## run all tests beside 40 processes that spin
	scripts/under-load 40 $(GO) test -count=1 -timeout 4h $(TESTFLAGS) ./...

torture-uprobes: ## run the tests of live processes while kernel uprobes come and go in them, and in all others
	scripts/beside-uprobes $(GO) test -count=1 -timeout 2h $(TESTFLAGS) ./kprobes ./ptrace ./inject ./internal/realprog

bench: build ## measure hits, attach, lookup, and how much code takes optimized probes; keep the rounds in NEW
	$(GO) run ./internal/bench -rounds $(ROUNDS) -keep '$(NEW)'
	$(GO) run ./internal/coverage -insns $(COVERED)

bench-compare: ## compare the rounds in the files OLD and NEW
	$(BENCHSTAT) '$(OLD)' '$(NEW)'

fuzz: ## run every fuzz target for FUZZTIME each (5m)
	@scripts/fuzz $(FUZZTIME)

examples: ## run the examples and compare their output
	@examples/run

clean: ## remove what was built
	rm -rf bin build dist "$${TMPDIR:-/tmp}/gokprobe-testprog-$$(id -u)"
