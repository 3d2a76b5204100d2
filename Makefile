# Sets up a virtual environment once (again when a lock file changes), then runs one command per target.

PYTHON ?= python3
VENV ?= .venv
STUDY ?=
TARGETS ?=
ARGS ?=

# VENV=off takes PYTHON as it is: it must already have the packages.
ifeq ($(VENV),off)
PY := $(PYTHON)
RUN_READY :=
DEV_READY :=
else
PY := $(VENV)/bin/python
RUN_READY := $(VENV)/run.stamp
DEV_READY := $(VENV)/dev.stamp
endif

PIP := -m pip install --quiet --disable-pip-version-check
OLD_ENOUGH := -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup ablate test test-gpu lint format bench compare publish check release-check doctor clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(DEV_READY) ## install what runs, tests and lint need

ablate: $(RUN_READY) ## build, check and (with a GPU) time the studies: STUDY="..." TARGETS="sm_89 ..." ARGS="..."
	$(PY) -m harness run $(STUDY) $(addprefix --target ,$(TARGETS)) $(ARGS)

test: $(DEV_READY) ## run the tests; those that need a GPU skip where there is none
	$(PY) -m pytest $(ARGS)

test-gpu: $(DEV_READY) ## run only the tests that need a GPU
	$(PY) -m pytest -m gpu $(ARGS)

lint: $(DEV_READY) ## ruff (rules and format) and mypy --strict
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

format: $(DEV_READY) ## let ruff mend what it can
	$(PY) -m ruff check --fix . && $(PY) -m ruff format .

bench: $(DEV_READY) ## benchmark the cases (with a GPU) and the host side, and save the run: ARGS="-k instruction"
	$(PY) -m pytest tests/bench -o python_files='bench_*.py' --benchmark-autosave --benchmark-save-data $(ARGS)

compare: $(RUN_READY) ## compare the last two saved benchmark runs of this GPU; fails on a regression in cycles
	$(PY) -m harness compare --bench $(ARGS)

publish: $(RUN_READY) ## write results/tables and the tables in README.md from the records
	$(PY) -m harness publish $(ARGS)

check: $(RUN_READY) ## fail when a record is invalid or a committed table is out of date
	$(PY) -m harness check $(ARGS)

release-check: $(RUN_READY) ## what check checks, and that no published row is of another text than its template
	$(PY) -m harness check --release $(ARGS)

doctor: $(RUN_READY) ## what is installed here, what is missing, what to do
	$(PY) -m harness doctor $(ARGS)

clean: ## remove the virtual environment and caches of tools; records and tables stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks build dist

%/run.stamp: requirements.lock
	$(PYTHON) $(OLD_ENOUGH) && $(PYTHON) -m venv $* && $(PY) $(PIP) -r $< && touch $@

%/dev.stamp: requirements-dev.lock %/run.stamp
	$(PY) $(PIP) -r $< && touch $@
