# routecal: everything runs from this checkout in .venv. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
digest = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-16)
# One stamp an input: a changed lock builds a new environment, a changed pyproject.toml only installs the project again.
LOCKED := $(VENV)/.lock-$(call digest,requirements.lock)
INSTALLED := $(VENV)/.project-$(call digest,requirements.lock pyproject.toml)

# Two test files at a time; LightGBM's and polars' own threads would only fight over the same cores.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 POLARS_MAX_THREADS=2 $(BIN)/python -m pytest
SOURCES := pipelines features models policies tests benchmarks

.PHONY: help install demo dev test test-slow check format bench golden-update lock clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## build .venv from requirements.lock (nothing to do if it is in place)

# The lock is whole, so nothing is left to resolve (--no-deps; `pip check` proves it), and compiling on all cores is faster
# than pip's one by one. A few packages ship files that are no Python of this version: those stay uncompiled.
$(LOCKED): | requirements.lock
	@"$(PYTHON)" -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v == (3, 11) else f"Python 3.11 is needed, $(PYTHON) is {v[0]}.{v[1]}; hint: make PYTHON=/path/to/python3.11 install")'
	"$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip check --disable-pip-version-check
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib || true
	@touch $@

$(INSTALLED): $(LOCKED) | pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.project-*
	@touch $@

demo: install ## the whole loop on a built-in emulated pool: logs in, signed policy out
	@$(BIN)/routecal demo $(ARGS)

dev: install ## serve the Dagster and MLflow UIs on the demo's data; Ctrl-C ends both
	@$(BIN)/routecal dev $(if $(ARGS),$(ARGS),$(addprefix --settings ,$(wildcard data/runs/demo/routecal.toml)))

test: install ## the tests, under ten minutes
	@$(BIN)/python -m policies.twin.warm
	$(PYTEST) -n $(JOBS) --dist loadfile -m "not slow" $(ARGS)

test-slow: install ## the tests that take longer
	$(PYTEST) -m slow $(ARGS)

check: install ## lint, format and types: what CI demands before the tests
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: install ## rewrite the sources in the house format
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: install ## speed and memory of the parts that run thousands of times
	@for name in $(basename $(notdir $(filter-out benchmarks/__init__.py,$(wildcard benchmarks/*.py)))) fidelity replay; do $(BIN)/python -m benchmarks.$$name; done

golden-update: install ## write tests/golden anew and show what changed
	ROUTECAL_GOLDEN_UPDATE=1 $(PYTEST) -q -m "not slow" -k golden || true
	git --no-pager diff --stat -- tests/golden data/schemas

lock: ## resolve requirements.lock from pyproject.toml (needs a package index)
	"$(PYTHON)" -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	cp requirements.lock .venv-lock/lock.txt
	.venv-lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --extra dev --all-build-deps --no-strip-extras \
	  --no-header --no-annotate --no-emit-options --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file .venv-lock/lock.txt pyproject.toml
	{ grep '^# ' requirements.lock; grep -vE '^(#|--|$$)' .venv-lock/lock.txt; } > .venv-lock/new.lock
	mv .venv-lock/new.lock requirements.lock
	rm -rf .venv-lock

clean: ## remove what was built; the lake and the policy store stay
	rm -rf $(VENV) .venv-lock .cache .mypy_cache .ruff_cache .pytest_cache
