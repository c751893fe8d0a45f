"""Every script in examples/ runs as a user would run it, with few steps."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
EXPECTED = {
    "compare_methods.py": ["vat+entropy"],
    "load_a_model.py": ["Input shape: (1, 8, 8)", "with confidence"],
    "own_images.py": ["$ afda check", "$ afda predict", "$ afda report"],
    "own_training_loop.py": ["Test error", "MMD²"],
    "scikit_learn.py": ["Chosen method:", "Test accuracy:"],
}
"""What each script prints, among other lines."""
MORE = {"compare_methods.py": ["--seeds", "1"]}


def test_every_script_is_tested():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(EXPECTED)
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in listed for name in EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), "--steps", "10", *MORE.get(name, [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in EXPECTED[name]), done.stdout
    if name == "own_images.py":
        assert len((tmp_path / "runs" / "own-images" / "predictions.csv").read_text().splitlines()) == 11
        assert (tmp_path / "runs" / "own-images" / "report.html").exists()
