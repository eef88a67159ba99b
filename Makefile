# Everything here works on a fresh clone: the virtual environment is made and filled when it is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
export OMP_WAIT_POLICY ?= PASSIVE
# Compiled modules are kept: each process of a test would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
# One more than there are processors: a fifth of the time of the tests is waiting.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo serve test test-slow test-kernels fuzz lint types doctest validate check lines bench docs pictures notebooks format clean help bench-load bench-loading

help: ## Show the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.demo ## A three-turn conversation, offline. DOCS=path asks about your own documents.
	$(BIN)/convcoa $(if $(DOCS),chat --docs "$(DOCS)",demo)

serve: $(VENV)/.demo ## The page to talk to, in the browser; Ctrl-C ends it. DOCS=path is about your own documents.
	$(BIN)/convcoa serve --docs "$(or $(DOCS),demo)" --open

test: $(VENV)/.dev ## The suite to run all day.
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.dev ## What takes longer: real servers, subprocesses, Studio.
	$(PYTEST) -m slow --durations 15

test-kernels: $(VENV)/.dev ## The encoder's tests with other kernels than this processor's own.
	OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 $(PYTEST) -m "not slow" tests/retrieval/encoders tests/retrieval/query/test_query_encoder.py
	OPENBLAS_CORETYPE=Nehalem ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=7 \
		$(PYTEST) -m "not slow" tests/retrieval/encoders tests/retrieval/query/test_query_encoder.py

fuzz: $(VENV)/.dev ## Fuzzing with 10,000 examples a test: an hour or two.
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/fuzz --timeout 7200 -o faulthandler_timeout=7500

doctest: $(VENV)/.dev ## Run the examples in the docstrings.
	$(BIN)/python -m pytest --doctest-modules langgraph_convcoa

lint: $(VENV)/.dev ## Style, formatting and import layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev ## Strict types.
	$(BIN)/mypy

validate: $(VENV)/.dev ## Check langgraph.json.
	$(BIN)/langgraph validate

docs: $(VENV)/.dev ## Build the documentation into docs/_build; warnings are errors.
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

pictures: $(VENV)/.dev ## Make the pictures of the documentation, from real runs.
	$(BIN)/python -m docs.pictures

notebooks: $(VENV)/.dev ## Run the notebooks and keep their outputs.
	$(BIN)/python docs/notebooks.py

check: lint types doctest validate docs ## Everything but the tests.

lines: ## Lines of Python in the package, in all and by room.
	@find langgraph_convcoa -name '*.py' -exec cat {} + | wc -l
	@for room in langgraph_convcoa/*/; do \
		printf '%7d %s\n' "$$(find $$room -name '*.py' -exec cat {} + | wc -l)" "$$(basename $$room)"; \
	done | grep -v __pycache__ | sort -rn
	@printf '%7d %s\n' "$$(cat langgraph_convcoa/*.py | wc -l)" "(files of no room)"

bench: $(VENV)/.dev ## The overhead of a turn.
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only

bench-load: $(VENV)/.dev ## Turns a second of 50 people at a server.
	$(BIN)/python -m tests.benchmarks.load serve

bench-loading: $(VENV)/.dev ## Loading into PostgreSQL with pgvector against its fastest path alone, and with Ray.
	$(BIN)/python -m tests.benchmarks.loading throughput --runs 1
	$(BIN)/python -m tests.benchmarks.loading ray

format: $(VENV)/.dev ## Mend style and formatting.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment and caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch alone first, so that the pinned build is there before anything else can ask for another.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing the package with torch: about 2 GB and a few minutes ..."
	$(PIP) torch
	$(PIP) --editable ".[offline,sqlite,serve]"
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Installing what development needs: a few minutes ..."
	$(PIP) --editable ".[dev,offline,sqlite,local,web,serve,mcp,documents,tabular,postgres,pgvector,milvus,ray,train,grpo,evaluate,notebooks,docs]"
	@touch $@
