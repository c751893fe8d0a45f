.PHONY: demo test lint slow clean

PYTHON ?= python3
BIN := .venv/bin

demo: .venv/installed
	$(BIN)/afda demo

test: lint
	$(BIN)/pytest -n 2

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: .venv/installed
	$(BIN)/pytest -m slow

# Everything is pinned: an unpinned torch may arrive as a CUDA build of several gigabytes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "afda needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv
