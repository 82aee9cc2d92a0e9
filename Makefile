# `make demo`, `make quick` and `make test` each set up what they need; what is done already is not done again.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
XDIST ?= 2

.PHONY: demo quick test lint setup clean

demo: setup
	@.ci/demo

# For work in progress: lint, every test that needs no adapter, and a fixed sample of the others. Under 90 seconds.
quick: setup lint
	$(BIN)/pytest -q -n $(XDIST) --dist worksteal --quick

test: setup lint
	$(BIN)/pytest -q -n $(XDIST) --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: .venv/ready .venv/adapter

.venv/ready: pyproject.toml
	.ci/venv "$(PYTHON)"
	@touch $@

.venv/adapter: .venv/ready
	.ci/adapter
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
