.PHONY: demo test browser lint slow soak fuzz clean

PYTHON ?= python3
BIN := .venv/bin

demo: .venv/installed
	$(BIN)/afda demo

test: lint browser
	$(BIN)/pytest -n 2

# The pages of reports are tested in a real browser; without one those tests are skipped, but not where CI is set.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -yqq --no-install-recommends chromium; } \
	  || echo "No Chromium: the tests of report pages will be skipped; install it with: apt-get install chromium"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: .venv/installed
	$(BIN)/pytest -m slow

soak: .venv/installed
	$(BIN)/pytest -m soak

# SECONDS per reader and TARGET, the reader, are what one likes; atheris does not build everywhere, so it stands apart.
SECONDS ?= 60
fuzz: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable ".[fuzz]" || true
	$(BIN)/python tests/fuzz --seconds $(SECONDS) $(TARGET)

# Everything is pinned: an unpinned torch may arrive as a CUDA build of several gigabytes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "afda needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv
