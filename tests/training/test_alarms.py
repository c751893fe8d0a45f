"""Alarms about a training that goes wrong without stopping."""

import numpy as np
import pytest

from afda.machine.runtime import select_runtime
from afda.report.collect import collect_report
from afda.runs.directory import Run
from afda.training.alarms import PATIENCE
from victims import light


@pytest.fixture(scope="module")
def odd(digits, tmp_path_factory):
    """Return files with digits, with blank images, and with digits whose unlabelled images are inverted."""
    x, y = digits.train.x[:200, 0].numpy(), digits.train.y[:200].numpy()
    some = np.where(np.arange(200) < 60, y, -1)
    inverted = np.where(some[:, None, None] < 0, x.max() - x, x)
    paths = {}
    for name, images, labels in (("plain", x, y), ("blank", 0 * x, y), ("inverted", inverted, some)):
        paths[name] = tmp_path_factory.mktemp("odd") / "few.npz"
        np.savez(paths[name], x=images, y=labels)
    return paths


@pytest.mark.parametrize(
    ("data", "align", "settings", "words"),
    [
        ("plain", "adversarial", [], []),
        ("blank", "adversarial", ["net.dropout=0"], ["it gives all features the same", "predictions are constant"]),
        ("blank", "none", [], ["predictions are constant"]),
        (
            "inverted",
            "adversarial",
            ["optimisation.learning_rate=0.02"],
            ["it tells labelled from unlabelled features"],
        ),
        ("inverted", "reversal", ["optimisation.learning_rate=0.02"], ["it tells labelled from unlabelled features"]),
    ],
)
def test_alarms(afda, odd, digits, tmp_path, monkeypatch, data, align, settings, words):
    """An alarm is given once: in the log, on standard error and in the report."""
    monkeypatch.setattr("afda.data.arrays.drop_copies", lambda data: data)  # blank images are copies of each other
    if data == "inverted":  # an alignment without weight does not make the features alike
        weak = ["align.weight=0", "align.hidden=32", "batchnorm=together", "net.dropout=0"]
        settings = ["labels=null", *weak, *settings]
    (tmp_path / "recipe.json").write_text(light(digits, "supervised", align, "steps=60", *settings).to_json())
    options = ["--device", "cpu", "--precision", "float32", "--no-baseline", "--out", tmp_path / "run"]
    code, _, err = afda("train", odd[data], "--recipe", tmp_path / "recipe.json", *options)
    assert code == 0
    alarms = [(line.step, line.warning) for line in Run(tmp_path / "run").log.read() if line.warning is not None]
    assert len(alarms) == len(words)
    assert all(word in warning and step >= PATIENCE for word, (step, warning) in zip(words, alarms, strict=True))
    assert [err.count(warning) for _, warning in alarms] == [1] * len(words)
    assert err.count("Warning") == len(words)
    (shown,) = collect_report([tmp_path / "run"], select_runtime("cpu")).runs
    assert shown.warnings == [f"After {step} updates: {warning}" for step, warning in alarms]
