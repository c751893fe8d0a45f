.PHONY: demo test browser lint docs coverage slow soak fuzz hooks clean

PYTHON ?= python3
BIN := .venv/bin

demo: .venv/installed
	$(BIN)/afda demo

test: lint browser
	$(BIN)/pytest -n 2

# The tests of report pages need a browser. Without one they are skipped, except where CI is set.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -yqq --no-install-recommends chromium; } \
	  || echo "No Chromium: the tests of report pages will be skipped; install it with: apt-get install chromium"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Write the generated reference pages again; a test fails if they are out of date.
docs: .venv/installed
	$(BIN)/python docs/scripts/generate.py

# Branch coverage of the same tests, including the processes that they start.
coverage: .venv/installed browser
	$(BIN)/coverage erase
	$(BIN)/pytest -n 2 --cov --cov-report=
	$(BIN)/coverage report

slow: .venv/installed
	$(BIN)/pytest -m slow

soak: .venv/installed
	$(BIN)/pytest -m soak

# SECONDS is the time per reader, TARGET the name of one reader. atheris has no wheel for some systems, so its
# installation may fail; the script then says that it is missing.
SECONDS ?= 60
fuzz: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable ".[fuzz]" || true
	$(BIN)/python tests/fuzz --seconds $(SECONDS) $(TARGET)

# Run ruff and mypy before every commit.
hooks: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pre-commit
	$(BIN)/pre-commit install

# All versions are pinned: an unpinned torch may arrive as a CUDA build of several gigabytes. The version of afda is in
# its __init__.py, and the installed metadata must agree with it.
.venv/installed: pyproject.toml constraints.txt src/afda/__init__.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "afda needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv
