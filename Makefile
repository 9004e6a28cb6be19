# Two commands: `make demo` and `make test`. Each makes .venv, installs into it and runs.
# PYTHON=python3.12 chooses the interpreter; PIP_* environment variables (PIP_INDEX_URL,
# PIP_EXTRA_INDEX_URL, …) reach pip as they are; PIP_ARGS adds options.
# On a machine without a GPU, point PIP_EXTRA_INDEX_URL at PyTorch's CPU wheels: it saves the
# download of the CUDA libraries.

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
DEMO_NAME ?= quickstart
DEMO_FILE := archive/campaigns/demo
DEMO_STORE := sqlite:///$(DEMO_FILE).db
EVOFORGE := $(BIN)/evoforge

.PHONY: demo test lint format startup clean help

help:
	@sed -n 's/^# //p' $(MAKEFILE_LIST) | head -4
	@echo "targets: demo test lint format startup clean"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evoforge needs Python 3.11 or newer; run: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing evoforge into $(VENV); the first time this takes some minutes"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing evoforge and its test tools into $(VENV); the first time this takes some minutes"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@ $(RUNTIME)

# A search on residual add + RMSNorm from an empty store, its elites measured again, its heatmap.
demo: $(RUNTIME)
	$(EVOFORGE) doctor --store $(DEMO_STORE)
	rm -f $(DEMO_FILE).db $(DEMO_FILE).db-wal $(DEMO_FILE).db-shm
	$(EVOFORGE) run experiments/quickstart.yaml --name $(DEMO_NAME) --store $(DEMO_STORE)
	$(EVOFORGE) bench $(DEMO_NAME) --store $(DEMO_STORE)
	$(EVOFORGE) heatmap $(DEMO_NAME) --store $(DEMO_STORE) -o $(DEMO_FILE).png
	@echo
	@echo "the map:      $(DEMO_FILE).png"
	@echo "the elites:   $(EVOFORGE) elites $(DEMO_NAME) --store $(DEMO_STORE)"
	@echo "a kernel:     $(EVOFORGE) show ID --store $(DEMO_STORE)"
	@echo "use them:     $(EVOFORGE) export $(DEMO_NAME) --store $(DEMO_STORE) -o my_kernels"
	@echo "your module:  $(EVOFORGE) run YOUR_TASK.py"

test: $(DEV)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

startup: $(RUNTIME)
	$(BIN)/python benchmarks/startup.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
