# Everything a contributor runs. Bare `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
CODE := src tests examples $(wildcard benchmarks)
ARGS ?=
GOQUEUE_FUZZ_SECONDS ?= 600
GOQUEUE_SOAK_SECONDS ?= 3600
GOQUEUE_SIM_SEEDS ?= 2000
GOQUEUE_CHAOS_CYCLES ?= 40
GOQUEUE_CHAOS_SEED ?= 1

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help run serve cluster test check sim chaos bench soak fuzz fmt clean lock

help: ## list the targets
	@awk -F ':.*## ' '/^[.a-z]+:.*## / {printf "  %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## see everything at work until Ctrl-C; ARGS=--seconds=30 ends by itself
	@$(BIN)/python -m examples.demo $(ARGS)

serve: $(READY) ## start a broker on ./data
	@$(BIN)/goqueue serve --data ./data $(ARGS)

cluster: $(READY) ## start three nodes of a cluster on this machine until Ctrl-C
	@$(BIN)/python -m examples.cluster $(ARGS)

test: $(READY) ## run the tests; ARGS goes to pytest, e.g. ARGS="-k codec"
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: $(READY) ## format, lint, types and layers, all reported before failing
	@failed=; \
	step() { echo "== $$*"; $(BIN)/"$$@" || failed="$$failed [$$*]"; }; \
	step ruff format --check .; \
	step ruff check .; \
	step mypy $(CODE); \
	step lint-imports --no-cache; \
	if [ -n "$$failed" ]; then echo "check failed:$$failed" >&2; exit 1; fi; \
	echo "check passed"

sim: $(READY) ## simulate brokers and quorums under faults from GOQUEUE_SIM_SEEDS (2000) seeds
	@GOQUEUE_SIM_SEEDS=$(GOQUEUE_SIM_SEEDS) $(BIN)/python -m pytest -n 2 tests/sim $(ARGS)

chaos: $(READY) ## attack three real nodes GOQUEUE_CHAOS_CYCLES (40) times, from GOQUEUE_CHAOS_SEED; needs root
	@$(BIN)/python -m tests.chaos --cycles $(GOQUEUE_CHAOS_CYCLES) --seed $(GOQUEUE_CHAOS_SEED) $(ARGS)

bench: $(BENCH_READY) ## measure GoQueue beside its peers; ARGS goes to the harness
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(READY) ## load a broker for GOQUEUE_SOAK_SECONDS (3600) and see what grows
	@GOQUEUE_SOAK_SECONDS=$(GOQUEUE_SOAK_SECONDS) $(BIN)/python -m benchmarks.soak $(ARGS)

fuzz: $(READY) ## feed hostile bytes for GOQUEUE_FUZZ_SECONDS (600)
	@GOQUEUE_FUZZ_SECONDS=$(GOQUEUE_FUZZ_SECONDS) $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/fuzz $(ARGS)

fmt: $(READY) ## format the code and apply the safe fixes
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

clean: ## remove .venv, caches and build output; ./data stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

lock: $(READY) ## pin the dependencies again; ARGS=--upgrade takes newer ones
	@$(COMPILE) $(ARGS) --extra dev --extra spark pyproject.toml --output-file requirements.lock
	@$(COMPILE) $(ARGS) --extra bench --constraint requirements.lock pyproject.toml \
		--output-file requirements-bench.lock

$(VENV): $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "GoQueue needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the locked dependencies"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@

$(BENCH_READY): $(READY) requirements-bench.lock
	@echo "installing the clients of the peers"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r requirements-bench.lock
	@touch $@
