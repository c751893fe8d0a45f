"""The documents agree with the tree: links, paths, names of code and tests, generated pages and tables."""

import ast
import importlib
import re
import runpy
import subprocess
from functools import cache
from pathlib import Path

import pytest

from afda.experiments.cells import Cell

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "docs" / "scripts"
GENERATED = runpy.run_path(str(SCRIPTS / "generate.py"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
FOLDERS = ("src/", "tests/", "docs/", "examples/", "results/", ".github/")
PACKAGES = tuple(path.name + "/" for path in (ROOT / "src" / "afda").iterdir() if path.is_dir())
MODULES = {path.stem for path in (ROOT / "src" / "afda").glob("[a-z]*.py")}
ABSENT = {"results/bfloat16", "src/afda/methods/feature_centre.py"}
"""Paths that are named although they are not there: runs in the repository's history, and a file of an example."""


def list_pages():
    """Return every Markdown page that git knows, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    return [ROOT / name for name in sorted(set(listed)) if (ROOT / name).exists()] or sorted(ROOT.glob("docs/**/*.md"))


PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in list_pages()]


def list_anchors(page):
    """Return the anchors of a page's headings, as public hosts make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page):
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in list_anchors(target), link


@cache
def list_tests(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if hasattr(node, "name")}


def find_problem(code, page):
    """Return what is wrong with a piece of code in a page, if it names a file, a test or a function."""
    path, _, test = code.partition("::")
    if path.startswith(PACKAGES) and path.endswith(".py"):
        path = f"src/afda/{path}"
    if path.startswith(FOLDERS) and not set(path) & set("*<>{} ="):
        if path.rstrip("/") in ABSENT or page.name == "CHANGELOG.md":
            return None
        if not ((ROOT / path).exists() or (page.parent / path).exists()):
            return "no such file"
        if test and test not in list_tests(ROOT / path):
            return "no such test"
    module, _, name = code.partition(".")
    if module in MODULES and re.fullmatch(r"[a-z_]\w*", name) and name != "py":
        return None if hasattr(importlib.import_module(f"afda.{module}"), name) else "no such name"
    return None


@pytest.mark.parametrize("page", PAGES)
def test_named_code_exists(page):
    codes = CODE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    assert [(code, problem) for code in codes if (problem := find_problem(code, page))] == []


def test_named_tests_exist():
    page = ROOT / "docs" / "explanation" / "reliability.md"
    known = {name for path in (ROOT / "tests").rglob("test_*.py") for name in list_tests(path)}
    named = re.findall(r"`(?:[\w/]+\.py)?(?:::)?(test_\w+)`", page.read_text(encoding="utf-8"))
    assert len(named) > 30
    assert sorted(set(named) - known) == []


def test_every_page_is_in_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    assert [page for page in (ROOT / "docs").rglob("*.md") if page != index and page.resolve() not in linked] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in GENERATED["list_pages"]()])
def test_generated_pages_are_up_to_date(page):
    assert page.read_text(encoding="utf-8") == GENERATED["render"](page), "run: make docs"


def test_there_are_generated_pages():
    assert {page.name for page in GENERATED["list_pages"]()} == {"command-line.md", "plug-ins.md", "progress.md"}


def test_the_table_of_precisions_is_that_of_the_runs():
    """Its rows are those that `results/rebuild.py` writes."""
    page, table = ROOT / "docs" / "explanation" / "bfloat16.md", ROOT / "results" / "tables" / "precision.md"
    rows = [
        line for line in table.read_text(encoding="utf-8").splitlines() if line.count("|") == 5 and " labels, " in line
    ]
    assert len(rows) == 9
    assert [row for row in rows if row not in page.read_text(encoding="utf-8").splitlines()] == []


def test_the_cost_of_an_update_is_as_documented():
    estimate = runpy.run_path(str(SCRIPTS / "estimate.py"))
    made = estimate["make_recipe"](Cell("svhn", "supervised", "none", 250))
    page = (ROOT / "docs" / "explanation" / "cost.md").read_text(encoding="utf-8")
    assert f"alone) | {estimate['count_operations'](made) / 1e9:.0f} GFLOP |" in page
    assert f"are {len(estimate['list_cells']())} cells;" in page


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 135
