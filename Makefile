# Two commands: `make demo` installs Curator and curates a real corpus; `make test` installs everything and runs the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -W ignore -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The pip that comes with Python 3.11 takes twice as long; Python compiles what is imported, which is a third of all modules.
INSTALL := $(PIP) --upgrade pip setuptools && $(PIP) --no-compile --no-build-isolation
PROJECTS := pyproject.toml constraints.txt $(wildcard packs/*/pyproject.toml)
PACKS := $(notdir $(patsubst %/,%,$(wildcard packs/*/)))
MODELS := -e 'packs/image[models,ocr]' -e 'packs/audio[models]' -e 'packs/text[chat,code,extract,tokens,wiki]'

# What `make fuzz` draws from: one seed for each round; `make fuzz SEED=…` replays one.
ROUNDS ?= 5
SEED ?= $(shell $(BIN)/python -c 'import random; print(*random.sample(range(10 ** 9), $(ROUNDS)))')
RANDOM_TESTS := -m "(hypothesis or seeded) and not ray and not gpu" --hypothesis-profile=fuzz --timeout=3600

# Where it is set, each process of the tests would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-core $(PACKS:%=test-%) soak fuzz lint bench docs tutorials dist clean

demo: $(VENV)/demo.done
	@test -s demo/corpus.jsonl || $(BIN)/python examples/corpus.py demo/corpus.jsonl
	$(BIN)/curator run text/documents demo/corpus.jsonl --out demo/out

# Tests run in JOBS processes: one more than two cores, since some wait. Those of a file share one of them, and what they make for
# all of the file; the files come in their order, those that need Ray first. NumPy has one thread in each, as in a worker: threads that
# wait for each other keep cores busy.
JOBS ?= 3
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/test.done
	$(PYTEST) -m "not slow" $(ARGS)

test-core: $(VENV)/test.done
	$(PYTEST) -m "not slow" tests $(ARGS)

$(PACKS:%=test-%): test-%: $(VENV)/test.done
	$(PYTEST) -m "not slow" packs/$* $(ARGS)

soak: $(VENV)/test.done
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=soak --timeout=1800 $(ARGS)

fuzz: $(VENV)/test.done
	@for seed in $(SEED); do echo "seed $$seed"; $(BIN)/python -m pytest $(RANDOM_TESTS) --hypothesis-seed=$$seed $(ARGS) \
		|| { echo "To see it again: make fuzz SEED=$$seed"; exit 1; }; done

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/test.done
	$(BIN)/python benchmarks/local.py

# The site, in site/. Its pages are those of docs/, the tutorials, and a reference made from docstrings.
docs: $(VENV)/docs.done
	$(BIN)/python docs/site/build.py

# Runs the notebooks, and stores in them what their cells show.
tutorials: $(VENV)/docs.done
	$(BIN)/python docs/site/store.py

# Builds into dist/, and tries what it built away from the sources: all of it together, and each distribution in an environment of its own.
dist: $(BIN)/python
	rm -rf dist
	@for project in . $(wildcard packs/*/); do \
		$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist $$project && rm -rf $$project/build || exit 1; done
	$(PYTHON) -m venv dist/venv
	dist/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt twine dist/*.whl
	dist/venv/bin/python -m twine check --strict dist/*.whl
	mkdir dist/demo && dist/venv/bin/python examples/corpus.py dist/demo/corpus.jsonl
	cd dist/demo && ../venv/bin/curator run text/documents corpus.jsonl --out out
	dist/venv/bin/curator --version
	$(PYTHON) examples/first.py dist/

clean:
	rm -rf $(VENV) demo dist site

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Curator needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.done: $(PROJECTS) | $(BIN)/python
	$(INSTALL) -e . $(PACKS:%=-e packs/%)
	@touch $@

$(VENV)/docs.done: $(VENV)/test.done
	$(PIP) -e ".[docs]"
	@touch $@

$(VENV)/test.done: $(PROJECTS) | $(BIN)/python
	$(INSTALL) -e ".[dev]" $(PACKS:%=-e packs/%) $(MODELS)
	@touch $@ $(VENV)/demo.done
