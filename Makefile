# `make demo` and `make test` do all their own set-up on a machine with python3 (3.11+), git and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
STAMP := $(VENV)/.core
DEV_STAMP := $(VENV)/.dev
# Three workers a core, because tests wait for processes, servers and pages of their own: 6:56 on two cores, where two
# took 7:17 for fewer tests. Each costs eight seconds of processor time before its first test.
WORKERS ?= $(shell expr 3 '*' $$(getconf _NPROCESSORS_ONLN))
# The runtime of `local/smollm2`, for the demo.
LOCAL_MODEL := build/local-model
# Inspect's own reader, for tests of what we write for it. What it needs does not go with what we need.
INSPECT := build/inspect
# AWS's own clients, for tests of our server with them. They bring half of AWS's toolkit along.
AWS_CLIENTS := build/aws-clients

# The tests start Python thousands of times: what it compiles, it keeps, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test check lint format bench bench-peers docs site release-notes screenshots constraints programs inspect aws-clients test-agents test-ray test-package package mutants chaos audit clean

help:
	@echo "make demo          run small batches: scripted agents and a real small model; no key, two minutes"
	@echo "make setup         install Proctor and its development tools in $(VENV)"
	@echo "make test          lint, types, every test"
	@echo "make check         lint and types only"
	@echo "make format        put the code in order"
	@echo "make aws-clients   install AWS's own clients, with which tests then call the server"
	@echo "make test-agents   install every agent and try each for real, confined, on a model on loopback"
	@echo "make test-ray      start a Ray cluster on this machine and run batches on its nodes"
	@echo "make test-package  install the wheel with every extra in a fresh environment, and try it"
	@echo "make package       build the wheel and the source archive in dist"
	@echo "make mutants       change the code at random and report how many changes the tests detect"
	@echo "make chaos         kill and disturb all jobs at random and count what is lost: MINUTES=5"
	@echo "make audit         look up known vulnerabilities of every pinned package"
	@echo "make bench         measure speed against bare scripts"
	@echo "make bench-peers   measure Inspect AI and promptfoo beside Proctor"
	@echo "make docs          renew docs/commands.md and the output of commands in the manual"
	@echo "make site          build the manual as a site in build/site"
	@echo "make release-notes print the notes of a release from CHANGELOG.md: VERSION=0.2.0"
	@echo "make screenshots   make the pictures of the web app in docs/pictures"
	@echo "make constraints   look for newer versions of what we need, and pin them"
	@echo "make clean         remove what all of these made"

setup: $(DEV_STAMP)

$(BIN)/uv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found. Try: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Proctor needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); tools/install-venv $(PYTHON) && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet uv

$(STAMP): $(BIN)/uv pyproject.toml constraints.txt
	@echo "Installing what Proctor needs in $(VENV), once."
	@$(UV) --constraint constraints.txt --editable .
	@touch $@

$(DEV_STAMP): $(STAMP)
	@$(UV) --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP) $(LOCAL_MODEL)
	@PYTHONPATH="$(CURDIR)/$(LOCAL_MODEL)" $(BIN)/python examples/demo/run.py

# The runtime of the small model, prebuilt, in a folder of its own: what is tested in $(VENV) stays as it is.
# The demo says so where it cannot be installed, and goes on. An interrupted installation leaves no folder of this name.
$(LOCAL_MODEL): $(BIN)/uv
	@rm -rf $@.new && $(UV) --constraint constraints.txt --target $@.new xllamacpp && mv $@.new $@ \
	  || { rm -rf $@.new; echo "NOTE: the small model could not be installed; the demo goes on without it." >&2; }

check: lint
	@$(BIN)/mypy

lint: $(DEV_STAMP)
	@$(BIN)/ruff check src tests benchmarks examples tools
	@$(BIN)/ruff format --check src tests benchmarks examples tools

TYPES := build/types

# At first, beside the types, all modules are compiled once, in place of once by each worker. After failures the folders
# of the tests stay. Nothing here calls make: `make -n test` would execute such a line, and the tests with it.
test: $(DEV_STAMP) programs inspect lint
	@mkdir -p build
	@$(BIN)/mypy >$(TYPES) 2>&1 & types=$$!; folder=$$(tools/test-folder); \
	test -e build/compiled || $(BIN)/python -m pytest --collect-only -qq >build/compiled 2>&1; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --basetemp "$$folder" && rm -rf "$$folder"; \
	tests=$$?; wait $$types; types=$$?; cat $(TYPES); exit $$((tests | types))

# Chromium, bubblewrap and PostgreSQL.
programs:
	@tools/install-programs

# Inspect in a place of its own.
inspect: $(DEV_STAMP)
	@test -x $(INSPECT)/bin/inspect || tools/install-inspect $(BIN)/uv $(INSPECT)

# AWS's clients in a place of their own: half a minute. `make test` leaves them out; their tests say so and are skipped.
aws-clients: $(DEV_STAMP)
	@test -x $(AWS_CLIENTS)/bin/python || tools/install-aws-clients $(BIN)/uv $(AWS_CLIENTS)

# Needs npm and the network, some gigabytes and some minutes; `make test` leaves these tests out.
test-agents: $(DEV_STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/install_agents.py
	@PROCTOR_REAL_AGENTS=1 $(BIN)/python -m pytest tests/real_agents -n $(WORKERS) --dist worksteal

# Ray's own processes take half a minute to start; `make test` leaves these tests out.
test-ray: $(DEV_STAMP) programs
	@$(UV) --constraint constraints.txt --editable '.[dev,ray]'
	@PROCTOR_RAY=1 $(BIN)/python -m pytest tests/batch/test_ray_engine.py

# Builds the wheel and the source archive, and tries both in fresh environments, the wheel with every extra: two
# minutes, and the network.
test-package: $(DEV_STAMP)
	@PROCTOR_PACKAGE_EXTRAS=aws,crypto,litellm,local,mcp,otlp,pandas,parquet,postgres,ray $(BIN)/python -m pytest tests/end_to_end/test_package.py

# The wheel and the source archive, in dist.
package: $(BIN)/uv
	@$(BIN)/uv build --quiet --out-dir dist .

# First make mutants MUTANTS="--record tests", then MUTANTS="--seed 7 --count 400"; the head of the tool says the rest.
mutants: $(DEV_STAMP) programs inspect
	@$(BIN)/python tools/mutants.py $(MUTANTS)

# Kills, faults of providers, full disks, locks, clocks, hostile agents, fuzzers; ends with one table.
MINUTES ?= 5
chaos: $(DEV_STAMP) programs
	@$(BIN)/python tests/chaos/harness.py --minutes $(MINUTES) $(CHAOS)

# Known vulnerabilities of every pinned version. Strict: a package that the index does not answer for fails the audit.
audit: $(BIN)/uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/audit && $(BIN)/uv pip install --quiet --python build/audit/bin/python pip-audit
	@build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off

format: $(DEV_STAMP)
	@$(BIN)/ruff check --fix src tests benchmarks examples tools
	@$(BIN)/ruff format src tests benchmarks examples tools

bench: $(DEV_STAMP)
	@$(BIN)/python benchmarks/run.py

# Needs npm and the network.
bench-peers: $(DEV_STAMP)
	@tools/install-peers $(BIN)/uv build/peers
	@$(BIN)/python benchmarks/peers.py build/peers

# The pictures of the web app that the README shows.
screenshots: $(DEV_STAMP) programs
	@$(BIN)/python tools/screenshots.py

docs: $(DEV_STAMP)
	@$(BIN)/python tools/write_command_manual.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/run_docs.py

# The manual as a site in build/site, without network. Its search needs a server: python3 -m http.server -d build/site
site: $(DEV_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "wrote build/site/index.html"

# What has changed, for a release: make release-notes VERSION=0.2.0
release-notes: $(DEV_STAMP)
	@$(BIN)/python tools/release_notes.py $(VERSION)

# Pins every version without saying where it comes from.
constraints: $(BIN)/uv
	@$(BIN)/uv pip compile --quiet --upgrade --all-extras --no-header --no-annotate --no-emit-index-url \
	  pyproject.toml --output-file constraints.txt

clean:
	@rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .hypothesis
