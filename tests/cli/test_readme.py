"""Every block of Python in the documents runs as it stands, given the names that its reader would have."""

import contextlib
import io
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks():
    """Yield every block once, also where several pages have it."""
    known = set()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        for block in BLOCK.finditer(text := page.read_text(encoding="utf-8")):
            line, code = text.count("\n", 0, block.start()) + 1, textwrap.dedent(block.group(2))
            if code not in known:
                yield pytest.param(code, id=f"{page.relative_to(ROOT)}:{line}")
            known.add(code)


def names():
    """What a reader is taken to have: arrays of their own, and a training loop."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    f, g = nn.Sequential(nn.Linear(20, 128), nn.ReLU()), nn.Linear(128, 3)

    def arrays(n):
        return random.integers(0, 256, (n, 8, 8), dtype=np.uint8), np.arange(n) % 3

    images, labels = arrays(30)
    test_images, test_labels = arrays(12)
    return {
        "np": np,
        "images": images,
        "labels": labels,
        "known": np.arange(30) < 9,
        "test_images": test_images,
        "test_labels": test_labels,
        "f": f,
        "g": g,
        "batches": [((torch.randn(6, 20), torch.arange(6) % 3), torch.randn(18, 20)) for _ in range(5)],
        "cross_entropy": nn.functional.cross_entropy,
        "mu": 0.5,
        "optimizer": torch.optim.Adam([*f.parameters(), *g.parameters()]),
    }


def run(code, where, monkeypatch):
    """The names after the block has run in an empty folder, and what it printed."""
    monkeypatch.chdir(where)
    held, printed = names(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "block", "exec"), held)
    return held, printed.getvalue()


@pytest.mark.parametrize("code", list(blocks()))
def test_a_block_runs(code, tmp_path, monkeypatch):
    before = names()
    held, printed = run(code, tmp_path, monkeypatch)
    if "AdversarialAlignment" in code:
        assert len(code.strip().splitlines()) <= 15
        for net in ("f", "g"):
            weights = [nn.utils.parameters_to_vector(of[net].parameters()) for of in (before, held)]
            assert weights[1].isfinite().all()
            assert not torch.equal(*weights)
    elif "AFDAClassifier" in code:
        afda, supervised_only = map(float, printed.split())
        assert afda > supervised_only + 0.03
    elif "np.savez" in code:
        from afda.data import load

        (path,) = tmp_path.iterdir()
        assert len(load(str(path)).train) == 30
    elif "train(" in code:
        assert 0 <= float(printed) < 50
        assert (tmp_path / "runs" / "mine" / "result.json").exists()
        assert 100 * np.mean(
            [name != str(int(y)) for name, y in zip(held["names"], held["data"].test.y, strict=True)]
        ) == (pytest.approx(float(printed)))


def test_every_kind_of_block_is_found():
    found = "".join(block.values[0] for block in blocks())
    assert all(name in found for name in ("AdversarialAlignment", "AFDAClassifier", "np.savez", "train("))
