"""`afda demo`: its table, its files, and a second call that trains nothing again."""

import json
import signal
import subprocess
import sys

import pytest

from afda import cli
from afda.experiments.demo import summarise_results
from afda.runs.directory import Run
from afda.runs.schemas import Result

RUNS = {"supervised-only": "supervised-20-seed0", "AFDA": "vat+entropy-adversarial-20-seed0"}


@pytest.fixture
def demo(tmp_path, monkeypatch, capsys):
    """`afda demo` in this process, in an empty folder."""
    kept = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["afda", "demo", "--seeds", "1", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as exit:
            code = exit.code or 0
        return code, *capsys.readouterr()

    yield run
    signal.signal(signal.SIGTERM, kept)


def test_demo(demo, tmp_path, monkeypatch):
    arguments = ["--steps", "12", "--labels", "20"]
    code, out, err = demo(*arguments, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["data"], result["labels"], result["seeds"], set(result["ways"])) == ("digits", 20, 1, set(RUNS))
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == sorted(
        [*RUNS.values(), "report.html", "report-label-next.csv"]
    )
    splits = set()
    for way, name in RUNS.items():
        run = Run(tmp_path / "demo" / name)
        row = result["ways"][way]
        assert row["test_error"] == row["test_errors"][0] == run.read_result().test_error
        assert (row["mmd2"], row["test_error_std"]) == (run.read_result().mmd2, None)
        assert (run.read_result().steps, run.read_result().labels) == (12, 20)
        splits.add((run.path / "split.json").read_text())
    assert len(splits) == 1

    # A second call runs nothing again.
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", None)
        assert json.loads(demo(*arguments, "--json")[1]) == result
        code, out, _ = demo(*arguments)
    assert code == 0
    assert f"{result['ways']['AFDA']['test_error']:.2f}" in out
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before

    # Nor does one with other settings take the old runs for its own.
    code, out, err = demo("--steps", "40", "--labels", "20")
    assert (code, out) == (2, "")
    assert "steps: 12 there, 40 now" in err


def test_too_many_labels(demo, tmp_path):
    code, out, err = demo("--labels", "1297")
    assert (code, out) == (2, "")
    assert err.startswith("Error: Ask for fewer than 1297 --labels")
    assert not (tmp_path / "demo").exists()


def test_a_row_summarises_its_runs():
    fields = {"val_error": None, "labels": 50, "unlabelled": 9, "images_per_second": 1.0}
    values = ((10.0, 0.1, 1.0), (12.0, 0.3, 2.0), (14.0, 0.2, 3.0))
    runs = [Result(test_error=error, mmd2=mmd2, seconds=seconds, **fields) for error, mmd2, seconds in values]
    row = summarise_results(runs)
    assert row.test_errors == [10, 12, 14]
    assert (row.test_error, row.test_error_std, row.seconds) == (12, 2, 2)
    assert row.mmd2 == pytest.approx(0.2)
    assert summarise_results(runs[:1]).test_error_std is None
