# make help lists everything.
GO ?= go

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: ## every test: the one command that says whether this tree works
	$(GO) test ./...
	cd examples/ownapp && $(GO) build -o /dev/null .

.PHONY: check
check: ## format, vet, staticcheck, import and purity rules
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	 if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./core -run 'Purity|Import'

.PHONY: race
race: ## every test under the race detector
	$(GO) test -race ./...

.PHONY: peers
peers: ## install DynamoDB and SQS peers (node, npm) and run the tests that need them
	cd localstack/peers && npm ci --ignore-scripts --no-audit --no-fund
	LAYOVER_PEERS=1 $(GO) test -count=1 -timeout 30m $(patsubst %,./%/...,$(wildcard ddbjournal functions localstack)) ./core/engine ./core/embedded
	@LAYOVER_PEERS=1 $(GO) test ./ddbjournal -count=1 -run '^TestReferenceRun$$' -v | grep -E 'run|FAIL'

.PHONY: fuzz
fuzz: ## each fuzz target for a short while (FUZZTIME=10s)
	$(GO) test ./core/record -run '^$$' -fuzz FuzzCanonical -fuzztime $(or $(FUZZTIME),10s)
	$(GO) test ./core/record -run '^$$' -fuzz FuzzOpen -fuzztime $(or $(FUZZTIME),10s)

.PHONY: bench
bench: ## figures of this machine, as JSON lines
	@LAYOVER_BENCH=1 $(GO) test ./core/embedded/bench -count=1 -run '^TestBench$$' -v | grep '^{'

.PHONY: certificates
certificates: ## write docs/certificates again from a sweep of every store (PEERS=1: DynamoDB's too)
	$(GO) test ./core/engine/enginetest -count=1 -run '^TestSweep' -update
	@if [ -n "$(PEERS)" ]; then LAYOVER_PEERS=1 $(GO) test ./ddbjournal -count=1 -run '^TestSweep' -update; fi

.PHONY: dev
dev: ## the server with the example agents, on .layover
	$(GO) run ./cmd/layover dev

.PHONY: scripts
scripts: ## rewrite the plays and golden files; look at the diff
	$(GO) test ./core -run Scripts -update
	$(GO) test ./core/record -run Golden -update
	$(GO) test ./core/engine -run Spans -update
