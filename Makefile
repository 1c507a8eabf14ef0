# `make demo` and `make test` are all it takes after a clone; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-faults test-slow check format bench results docs dist clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## make .venv and install the package with its tools

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## train four methods on the embedded images and write a report (minutes)
	$(BIN)/maskcon demo

test: $(STAMP)  ## all tests but the slow ones and those of the disk
	$(BIN)/python -m pytest -n 2 -m "not slow and not faults" $(PYTEST_OPTIONS)

test-faults: $(STAMP)  ## fail every operation of the disk, end processes, lose power (FAULTS=all: in every way)
	$(BIN)/python -m pytest -n 2 -m faults tests/faults

test-slow: $(STAMP)  ## the slow tests: real kills, many mutations, browsers
	$(BIN)/python -m pytest -m slow

check: $(STAMP)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)  ## put the code into the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## what training and evaluation cost here, as ratios within one run (five minutes)
	$(BIN)/python -m benchmarks.bench --json bench.json

results: $(STAMP)  ## the embedded-set table of docs/results.md, from nothing (hours)
	$(BIN)/python benchmarks/method_table.py embedded all

# As few packages as a reader of the documentation needs, beside or without those of `make setup`.
$(VENV)/.docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

docs: $(VENV)/.docs  ## the documentation as a website, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

dist: $(STAMP)  ## wheel and source archive, in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

clean:  ## remove what was made, but no run
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
