.DEFAULT_GOAL := help
.PHONY: help run build test stress stress-cow soak bench-cow test-arm64 escape scoreboard bench mutate record lint fuzz fuzz-policy cases generate install clean

# Everything is built and tested as it ships: static, without a C compiler.
export CGO_ENABLED := 0

PREFIX   ?= /usr/local
FUZZTIME ?= 30s
OPERATIONS ?= 1000
KILLS      ?= 500
DURATION ?= 10m
MUTATED  ?= $(shell cat packaging/mutate/files)
EXEC_CASES_DIR ?= ../shared/cases/exec
# The packages whose tests root runs a second time as an ordinary user: what runs sandboxes, and what is asked from one.
USER_PACKAGES ?= ./sandbox/... ./cmd/... ./grants/client ./grants/server ./integration/...

COMMANDS := $(patsubst cmd/%/,%,$(sort $(wildcard cmd/clai-sandbox*/)))
VERSION   = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The tag leaves out a generator of manuals that takes a third of the command's start.
BUILD     = go build -trimpath -buildvcs=false -tags urfave_cli_no_docs -ldflags '-s -w -X main.version=$(VERSION)'
STATICCHECK = go tool -modfile=packaging/tools.mod staticcheck
DATA      = $(DESTDIR)$(PREFIX)/share

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## set up this machine, build, and show what a sandboxed command can and cannot do
	@packaging/setup.sh run
	@$(MAKE) --no-print-directory build
	@packaging/demo.sh

build: | bin ## build the commands into bin/
	$(BUILD) -o bin/ $(COMMANDS:%=./cmd/%)
	ln -sf clai-sandbox bin/clai-shell

test: ## set up this machine for the tests, vet, and run them all; as root also as an ordinary user
	@packaging/setup.sh test
	@packaging/inspector.sh
	@packaging/agents.sh
	@$(MAKE) --no-print-directory build
	go vet ./...
	@packaging/test.sh $(USER_PACKAGES)

stress: ## have OPERATIONS (1000) grants come and go while the gateway is killed, also on a full disk, and as many commands run outside
	GATEWAY_TEST_OPERATIONS=$(OPERATIONS) go test -count=1 -run 'ManyOperationsWithKills|ManyCommandsWithKills' -v -timeout 0 ./integration/gateway ./cmd/clai-sandboxd

stress-cow: ## kill KILLS (500) applies, have two people write while changes are applied, and make layers 40,000 directories deep
	go test -count=1 -run 'IsKilled|APersons|NoChangeOf|Hostile|Deep|Merge' -v -timeout 0 ./sandbox/cow/changes -kills=$(KILLS) -levels=40000

soak: build ## have a session of an agent's make 50 calls a second for DURATION (10m), and nothing may grow
	CLAI_SANDBOX_TEST_SOAK=$(DURATION) CLAI_SANDBOX_TEST_SOAK_PROGRAM='$(CURDIR)/bin/clai-sandboxd' go test -count=1 -run '^TestSoak$$' -v -timeout 0 ./integration/mcp

escape: build ## try all escapes, as root also as an ordinary user, and print what stopped each
	@packaging/setup.sh test
	@packaging/escape.sh

scoreboard: ## try the escapes in other launchers of sandboxes too, and write docs/scoreboard.md; as root: USER=somebody
	@packaging/scoreboard.sh $(if $(filter 0,$(shell id -u)),$(USER))

mutate: | bin ## take each condition of MUTATED (packaging/mutate/files) out once, and print those that no test misses; takes an hour
	go build -o bin/mutate ./packaging/mutate
	bin/mutate $(MUTATED)

bench: build ## measure a start beside bare bwrap with the same options, and what plans and verdicts cost
	@packaging/setup.sh run
	go build -o bin/bench ./packaging/bench
	bin/bench -binary bin/clai-sandbox
	go test -run '^$$' -bench . -benchmem ./sandbox ./grants/... ./policy ./integration/... ./cmd/clai-sandboxd

bench-cow: build ## measure what is seen copy on write beside what is not: starts, go build, npm install, 100,000 files
	@packaging/setup.sh run
	go build -o bin/bench ./packaging/bench
	bin/bench -copied -n 100 -binary bin/clai-sandbox
	go test -run '^$$' -bench Workspace -benchtime 1x -timeout 0 ./sandbox/cow/changes

test-arm64: ## run the trampoline's tests as arm64 code in an emulator (qemu-user-static)
	GOARCH=arm64 CGO_ENABLED=0 go test -c -o bin/trampoline-arm64.test ./sandbox/trampoline
	CLAI_SANDBOX_TEST_EMULATOR=$$(command -v qemu-aarch64-static) qemu-aarch64-static bin/trampoline-arm64.test -test.v

record: build ## record docs/live-grant.txt anew
	packaging/record-live.sh

lint: ## check formatting, vet, staticcheck, and the shell scripts where shellcheck is installed
	@files=$$(gofmt -l .); [ -z "$$files" ] || { printf 'not formatted (gofmt -w):\n%s\n' "$$files"; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...
	@if command -v shellcheck >/dev/null; then set -x; shellcheck .ci/run packaging/*.sh; \
	else echo "no shellcheck here: the shell scripts are not checked"; fi

fuzz-policy: ## for FUZZTIME each, have real shells execute what the policy allows, and real programs what the tables take for harmless
	go test -count=1 -run '^TestTheShells|^TestWhatIsTakenForHarmless' -v -timeout 0 ./policy -shells $(FUZZTIME)

cases: | bin ## try the behaviour cases of EXEC_CASES_DIR (../shared/cases/exec), and count those that are equal, stricter and looser
	@EXEC_CASES_DIR='$(abspath $(EXEC_CASES_DIR))' go test -count=1 -run '^TestCases$$' -v ./policy >bin/cases.log 2>&1; status=$$?; \
	grep -E '^[A-Za-z_]+(\.json)? equal=' bin/cases.log; grep -E -A2 ': (looser|wrong): ' bin/cases.log || true; exit $$status

fuzz: ## run each fuzz target for FUZZTIME (30s)
	@packaging/fuzz.sh $(FUZZTIME)

generate: ## write the generated files anew
	go generate ./...

install: ## install what is in bin/ with its man pages and completions below DESTDIR and PREFIX (/usr/local)
	@[ -x bin/clai-sandbox ] || $(MAKE) --no-print-directory build
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(COMMANDS:%=bin/%) $(DESTDIR)$(PREFIX)/bin
	ln -sf clai-sandbox $(DESTDIR)$(PREFIX)/bin/clai-shell
	@packaging/install-data.sh '$(DATA)' '$(PREFIX)/bin'

bin:
	@mkdir -p bin

clean: ## remove what the other targets made here
	rm -rf bin
