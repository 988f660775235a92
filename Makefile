# `make demo`, `make test` and `make test-all` each do all the set-up on a fresh machine that has Python 3.11 or newer.
# The environment lives in .venv and is installed again only when pyproject.toml or a .lock file changes.

SHELL := /bin/sh
BIN := .venv/bin
STAMP := .venv/.installed
JOBS ?= 2
# Tried in this order: 3.11 first, because it is the version that every pinned package is tested with.
PYTHONS ?= python3.11 python3.12 python3.13 python3

.DEFAULT_GOAL := help
DOCS := .venv/.docs
.PHONY: help setup demo docs browser test test-all mutants

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 18

setup: $(STAMP) ## only the virtual environment in .venv

$(STAMP): pyproject.toml requirements.lock requirements-triton.lock requirements-torchtitan.lock
	@set -eu; \
	if ! $(BIN)/python -c '' 2>/dev/null; then \
	  python=; \
	  for candidate in $(PYTHONS); do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "shardc needs Python 3.11 or newer; tried: $(PYTHONS). Install one, or say make PYTHONS=/path/to/python" >&2; exit 1; \
	  fi; \
	  echo "setting up .venv with $$($$python --version)"; \
	  $$python -m venv --clear .venv; \
	fi; \
	echo "installing the pinned packages (minutes the first time)"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock; \
	$(BIN)/python -c 'import triton' 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-triton.lock; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-torchtitan.lock; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; \
	touch $(STAMP)

demo: $(STAMP) ## run examples/llama_demo.py: a Hugging Face Llama on four processes
	@if [ ! -f examples/llama_demo.py ]; then echo "make demo: examples/llama_demo.py is missing from this checkout" >&2; exit 1; fi
	@$(BIN)/python examples/llama_demo.py

$(DOCS): $(STAMP) requirements-docs.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-docs.lock
	@touch $(DOCS)

docs: $(DOCS) ## write docs/reference from the definitions, and build the book into out/book
	@$(BIN)/python docs/write_reference.py docs/reference
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs out/book
	@echo "open out/book/index.html"

browser: ## Chromium from Debian, in which test/e2e/test_page.py opens pages; needs root
	apt-get update -qq
	apt-get install -y --no-install-recommends chromium fonts-dejavu-core

# Every part runs even if an earlier one failed; the last line says which did.
define run-tests
	@failed=; \
	echo "== ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check . || failed="$$failed ruff"; \
	echo "== pyright"; $(BIN)/basedpyright || failed="$$failed pyright"; \
	echo "== lit";  $(BIN)/lit -j $(JOBS) test/filecheck || failed="$$failed lit"; \
	echo "== pytest"; $(BIN)/python -m pytest -n $(JOBS) $(1) test/unit test/e2e test/zoo || failed="$$failed pytest"; \
	if [ -n "$$failed" ]; then echo "make $@: FAILED:$$failed"; exit 1; fi; \
	echo "make $@: passed (ruff, pyright, lit, pytest)"
endef

test: $(STAMP) ## ruff, pyright, lit, and the quick tests: 10 minutes on JOBS=2 cores
	$(call run-tests,-m "not slow")

test-all: $(STAMP) $(DOCS) ## the same and each day a tenth of the slow tests, as continuous integration does
	$(call run-tests,--slow-today)

mutants: $(STAMP) ## which tests catch the planted bugs of test/mutants; goes on where it stopped
	@$(BIN)/python test/mutants/run.py --jobs $(JOBS)
