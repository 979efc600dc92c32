# Two commands: `make demo` installs Curator and curates a real corpus; `make test` installs everything and runs the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PROJECTS := pyproject.toml constraints.txt $(wildcard packs/*/pyproject.toml)
PACKS := -e packs/text -e packs/image
MODELS := -e 'packs/image[models,ocr]'

.PHONY: demo test lint bench clean

demo: $(VENV)/demo.done
	@test -s demo/corpus.jsonl || $(BIN)/python examples/corpus.py demo/corpus.jsonl
	$(BIN)/curator run text/documents --set read='{jsonl: {path: demo/corpus.jsonl}}' --out demo/out

test: $(VENV)/test.done
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/test.done
	$(BIN)/ruff check .

bench: $(VENV)/test.done
	$(BIN)/python benchmarks/local.py

clean:
	rm -rf $(VENV) demo

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Curator needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.done: $(PROJECTS) | $(BIN)/python
	$(PIP) -e . $(PACKS)
	@touch $@

$(VENV)/test.done: $(PROJECTS) | $(BIN)/python
	$(PIP) -e ".[dev]" $(PACKS) $(MODELS)
	@touch $@ $(VENV)/demo.done
