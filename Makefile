# The only front door for people and for CI. `make` alone prints what there is.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Whatever the shell says: many tests start processes, and compiling the sources for each of them
# takes a quarter of their time.
export PYTHONDONTWRITEBYTECODE :=
# Three, on two cores: a third of a test's time is spent waiting for a process, a disk or a network.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup demo test long check bench clean pins

help: ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

# What the demo needs, and then what the tests need as well: a first `make demo` waits for less.
$(VENV)/.runs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.ready: $(VENV)/.runs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

setup: $(VENV)/.ready ## Create .venv with everything in it

demo: $(VENV)/.runs ## Run the main job and print its URL (no services needed)
	@$(BIN)/landed demo

test: setup check ## Everything that must hold, in under ten minutes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q -m 'not long'

long: setup ## The same promises at large counts: seeds, kills, rows
	LANDED_TEST_AFRESH=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q --timeout 3600 -o faulthandler_timeout=3500

check: setup ## Format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

$(VENV)/.measures: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,bench]'
	@touch $@

bench: $(VENV)/.measures ## Ratios measured side by side in one run: a table, and JSON in benchmarks/results
	$(BIN)/python -m benchmarks

clean: ## Remove what the targets made
	rm -rf $(VENV) .landed-demo build dist

pins: setup ## Write the installed versions into constraints.txt
	(echo "# Versions that were tested together: names and versions only. Renew: make pins"; \
	 $(BIN)/python -m pip freeze --exclude-editable | grep -v '@ ') > constraints.txt
