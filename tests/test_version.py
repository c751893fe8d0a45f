"""The version is written once, in `afda.__version__`; everything else agrees with it."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import afda

ROOT = Path(__file__).parents[1]
RELEASE = re.compile(r"^## (\d+)\.(\d+)\.(\d+)", re.MULTILINE)


def test_the_installed_metadata_agree():
    assert version("afda") == afda.__version__, "install again: make installs when the version has changed"


def test_no_other_file_states_a_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_changelog_agrees():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = tuple(map(int, RELEASE.search(text).groups()))
    release, _, development = afda.__version__.partition(".dev")
    now = tuple(map(int, release.split(".")))
    if development:
        assert now > newest
        assert "\n## Unreleased\n" in text
    else:
        assert now == newest
