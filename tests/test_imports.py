"""Imports go one way, and what is not needed is not imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import afda

LAYERS = (
    {"errors"},
    {"machine"},
    {"registry", "losses", "measures", "schedules"},
    {"nets"},
    {"data"},
    {"methods"},
    {"align"},  # an alignment is an objective, as methods are
    {"recipe"},
    {"recipes"},
    {"data.sets"},  # found by name only: a data set's file brings its recipes
    {"runs"},
    {"training"},
    {"report"},
    {"experiments", "estimator"},
    {"cli"},
    {"__main__"},
)
"""The packages and modules of afda, lowest first: each imports from its own layer and those before it."""
ROOT = Path(afda.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def layer(name):
    found = [i for i, names in enumerate(LAYERS) if name in names]
    assert found, f"{name} is in no layer yet"
    return found[0]


def imported(path):
    """The layers that a file imports when it is itself imported; `afda.data.sets` is a layer of its own in `data`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("afda."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "afda":
            assert node.level == 0
            parts = node.module.split(".")
            if parts[1:3] == ["data", "sets"]:
                yield "data.sets"
                continue
            yield from (parts[1:2] if len(parts) > 1 else (a.name for a in node.names if a.name != "__version__"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    parts = path.relative_to(ROOT).parts
    own = "data.sets" if parts[:2] == ("data", "sets") else parts[0].removesuffix(".py")
    for name in imported(path):
        assert layer(name) <= layer(own), f"{own} imports {name}"


def test_the_public_names():
    assert dir(afda) == sorted(afda.__all__)
    assert all(getattr(afda, name) is not None for name in afda.__all__)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = afda.absent


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["afda", "afda.cli", "afda.registry", "afda.data"])
def test_light_imports(module):
    heavy = "{'torch', 'numpy', 'sklearn', 'pydantic'}" if module in ("afda", "afda.cli") else "{'torch', 'sklearn'}"
    done = run(f"import sys, {module}; print(*({heavy} & set(sys.modules)))")
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("name", ["train", "AdversarialAlignment", "AFDAClassifier"])
def test_a_public_name_is_found_when_first_used(name):
    done = run(
        f"import afda.training.run, afda; from afda import {name}; assert callable({name}) and afda.{name} is {name}"
    )
    assert done.stderr == ""
