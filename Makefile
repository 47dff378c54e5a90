# make demo   build everything, run the quickstart experiment, write its report
# make check  format, lint, types, structure
# make test   everything that must hold, with development builds; CI runs it after make check
# make bench  the programs against their peers, side by side
# make reproduce   the published tables of the first report, measured shortened on emulated hosts
# make bench-predict   predictions of other numbers of workers, held back and measured
# make soak   what make test does at length: kills, histories that are checked, keys and messages that come and go, and drawn
#             anew: answers compared with memcached's, networks solved in two ways, examples; and every experiment
# make fuzz   a short run of every fuzz target (needs cargo-fuzz and a nightly toolchain)

.DEFAULT_GOAL := demo
.DELETE_ON_ERROR:
.PHONY: demo test test-build test-programs test-rust test-python check check-python bench bench-predict reproduce soak \
    soak-kv soak-queue soak-middleware fuzz build clean

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
EXTENSION := python/knee/_kernels.abi3.so
# A deleted file is no prerequisite, though git still lists it.
KERNELS := $(wildcard $(shell git ls-files --cached --others --exclude-standard crates/kernels crates/random Cargo.lock 2>/dev/null))
RUST   := $(wildcard $(shell git ls-files --cached --others --exclude-standard crates Cargo.toml Cargo.lock 2>/dev/null))
PYTHONS := $(wildcard $(shell git ls-files --cached --others --exclude-standard 'python/*.py' 'tests/*.py' 2>/dev/null))

# The extension is linked without a Python: pyo3 builds it for the stable interface.
FOR_PYTHON := PYO3_BUILD_EXTENSION_MODULE=1 PYO3_NO_PYTHON=1

# clippy-driver compiles and lints at once, so that the check and the tests share one build.
LINTED := $(shell command -v clippy-driver >/dev/null && echo RUSTC_WORKSPACE_WRAPPER=clippy-driver)
TESTED := $(LINTED) cargo test --locked --tests
SOAKED := $(LINTED) cargo test --locked
EXTENDED := $(FOR_PYTHON) $(LINTED) cargo build --locked -p knee-kernels --lib --features python

# Words that make a sentence hard to read, and where they may stand: a Unix user, a test's data.
BANNED  := told|tell of|tells of|whoever|whom|of which|meanwhile|nobody|somebody|his|him
ALLOWED := ':!crates/testkit/src/memcached.rs' ':!tests/data' ':!docs/decisions'

# Tests that run at once: four a processor, since half of a test's time is waiting for programs. Python's take longer than
# Rust's beside them.
at_once = $(shell n=$$(($(1) * $$(nproc) / 2)); echo $$((n < 1 ? 1 : n < 16 ? n : 16)))
WAITING = $(call at_once,4)

# Flags for several targets at once.
TOGETHER := --no-print-directory -j3

# Keep what Python compiles, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

demo: build
	$(BIN)/knee run experiments/quickstart.toml

# Rust's and Python's tests run side by side: half of their time is waiting for programs. The tests that count seconds,
# memory or processes run last, alone.
test:
	$(MAKE) $(TOGETHER) test-build
	tests/peers.sh
	$(MAKE) $(TOGETHER) --output-sync=target test-rust test-python
	$(BIN)/pytest -p no:cacheprovider -m alone $$(grep -rl --include='test_*.py' 'mark\.alone' tests)

test-rust:
	$(TESTED) --no-fail-fast -- --test-threads=$(call at_once,3)

test-python:
	$(BIN)/pytest -p no:cacheprovider -n $(call at_once,5) --dist worksteal -m "not alone"

# Python's packages arrive, and its tests are compiled, while Rust's compile.
test-build: $(VENV)/compiled test-programs

test-programs: $(EXTENSION)
	$(TESTED) --no-run

# The build has printed its warnings; cargo prints them again, and any fails the check, as does a failed build.
check:
	$(MAKE) $(TOGETHER) test-build check-python
	cargo fmt --all --check
	@command -v clippy-driver >/dev/null || { echo 'make: clippy is missing: rustup component add clippy' >&2; exit 1; }
	@said=$$({ export CARGO_TERM_COLOR=never; $(EXTENDED) && $(TESTED) --no-run; } 2>&1) \
	    || { echo "$$said"; exit 1; }; ! echo "$$said" | grep -A 5 '^warning'
	$(BIN)/python tests/circles.py crates/*
	@! git grep -nwiE '$(BANNED)' -- '*.rs' '*.py' '*.sql' '*.md' '*.toml' $(ALLOWED) \
	    || { echo 'make: banned words above: write them plainly (CONTRIBUTING.md, Style)' >&2; exit 1; }

check-python: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: build $(VENV)/dev
	tests/peers.sh all
	cargo build --locked --release -p knee-bench
	$(BIN)/python -m bench.sign_table
	$(BIN)/python -m bench.queueing
	$(BIN)/python -m bench.simulate
	$(BIN)/python -m bench.held_back 20
	$(BIN)/python -m bench.coverage 10
	$(BIN)/python -m bench

reproduce: build
	tests/peers.sh
	$(BIN)/python -m bench.reproduce --short

bench-predict: build
	$(BIN)/python -m bench.predict

# Three streams side by side, as half of their time is waiting. The tests that count seconds run last, alone.
soak: build test-build $(VENV)/dev
	tests/peers.sh all
	cargo clippy --locked -p knee-bench -p knee-queue --all-targets -- -D warnings
	$(MAKE) $(TOGETHER) --output-sync=line soak-kv soak-queue soak-middleware
	KNEE_MESSAGES=10000000 KNEE_SECONDS=1200 $(SOAKED) --profile fast -p knee-queue --test main churn:: -- --nocapture
	KNEE_MESSAGES=1000000 KNEE_SECONDS=300 KNEE_SNAPSHOT=1 \
	    $(SOAKED) --profile fast -p knee-queue --test main churn:: -- --nocapture
	KNEE_SOAK=1 $(BIN)/pytest -p no:cacheprovider tests/system/test_experiments.py tests/system/test_conformance.py \
	    tests/system/test_queue_bottleneck.py tests/system/test_find.py tests/system/test_cluster.py \
	    tests/system/test_sessions.py

soak-kv:
	KNEE_KILLS=1000 $(SOAKED) -p knee-bin --test main servers::durable::killed -- --nocapture
	KNEE_KILLS=100 $(SOAKED) -p knee-kv --test main graph_killed -- --nocapture
	KNEE_SOAK=100 $(SOAKED) -p knee-kv --test main linearizability -- --nocapture
	KNEE_SOAK=150 $(SOAKED) -p knee-kv-store --test main torture:: -- --nocapture
	KNEE_SOAK=50 $(SOAKED) -p knee-kv-store --test main -- behaves_as_a_map torn_batch
	KNEE_SOAK=25 KNEE_KILLS=300 $(SOAKED) -p knee-kv-store --test main damage:: -- --nocapture
	KNEE_SOAK=50 $(SOAKED) -p knee-kv-store --test main full_disk::
	KNEE_SOAK=50 $(SOAKED) -p knee-kv-store --test main space:: -- --nocapture
	KNEE_SOAK=200 $(SOAKED) -p knee-nbd -p knee-bin --test main -- nbd:: space:: --nocapture
	tests/space.sh target/release
	KNEE_SOAK=50 $(SOAKED) -p knee-kv --test main load_after_cuts
	env -u KNEE_MEMCACHED KNEE_SOAK=400 $(SOAKED) -p knee-kv --test main memcached:: -- --nocapture

soak-queue:
	KNEE_SOAK=20 $(SOAKED) -p knee-queue --test main histories:: -- --nocapture
	KNEE_SOAK=60 $(SOAKED) -p knee-bin --test main queue::killed -- --nocapture
	for round in $$(seq 5); do \
	    KNEE_SOAK=1 $(BIN)/pytest -p no:cacheprovider -n $(WAITING) -m hypothesis || exit 1; done
	KNEE_SOAK=1 $(BIN)/pytest -p no:cacheprovider -n $(WAITING) tests/unit/test_fit*.py tests/unit/test_factorial*.py \
	    tests/unit/test_comparisons.py tests/unit/test_peak.py
	KNEE_SOAK=50 $(SOAKED) -p knee-kernels --test networks -- --nocapture
	$(SOAKED) -p knee-bench --tests

soak-middleware:
	KNEE_SOAK=300 $(SOAKED) -p knee-bin --test main servers::chaos -- --nocapture
	KNEE_SOAK=50 $(SOAKED) -p knee-middleware --test main racing -- --nocapture
	env -u KNEE_MEMCACHED KNEE_SOAK=20000 $(SOAKED) -p knee-middleware --test main odd_lines -- --nocapture
	[ -z "$$KNEE_MEMCACHED" ] || KNEE_SOAK=20000 $(SOAKED) -p knee-middleware --test main odd_lines -- --nocapture
	env -u KNEE_MEMCACHED KNEE_SOAK=350 $(SOAKED) -p knee-proto --test memcached random_lines -- --nocapture

fuzz:
	for crate in proto nbd; do cd $(CURDIR)/crates/$$crate && for target in $$(cargo +nightly fuzz list); do \
	    cargo +nightly fuzz run $$target -- -max_total_time=60 || exit 1; done || exit 1; done

build: target/release/knee-proxy $(VENV)/run

target/release/knee-proxy: $(RUST)
	@command -v cargo >/dev/null || { echo "make: cargo is missing: install Rust 1.88 or newer (https://rustup.rs, or Debian's rustup package)" >&2; exit 1; }
	$(FOR_PYTHON) cargo build --locked --release -p knee-bin -p knee-kernels --features knee-kernels/python
	install -m 755 target/release/libknee_kernels.so $(EXTENSION)
	@touch $@

# The same extension serves every Python from 3.11 on. A running Python keeps the file it has.
# The tests take a development build of it where no release build is newer.
$(EXTENSION): $(KERNELS)
	$(EXTENDED)
	install -m 755 target/debug/libknee_kernels.so $@

# The virtual environments' contents, as files that say when they were made.
$(VENV)/run: requirements.txt pyproject.toml
	tests/python.sh $(PYTHON) $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

$(VENV)/dev: requirements-dev.txt $(VENV)/run
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

# pytest compiles the tests: otherwise each of its processes would compile all of them.
$(VENV)/compiled: $(EXTENSION) $(VENV)/dev $(PYTHONS)
	-$(BIN)/pytest -p no:cacheprovider --collect-only -q > /dev/null && touch $@

clean:
	rm -rf target $(EXTENSION) $(VENV) build dist
