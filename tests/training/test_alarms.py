"""Alarms about a training that goes wrong without stopping."""

import numpy as np
import pytest
import torch

from afda.machine.runtime import select_runtime
from afda.nets import Output
from afda.report.collect import collect_report
from afda.runs.directory import Run
from afda.runs.log import LogLine
from afda.runs.results import TrainingOutputs
from afda.training.alarms import PATIENCE, find_alarm
from contract import make_recipe
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


# Skewed predictions

SVHN = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)
"""Training images of each class."""


def make_outputs(labels, predicted):
    """Return outputs for these counts: labels per class, and unlabelled images per predicted class."""
    y, assigned = (torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)) for counts in (labels, predicted))
    one_hot = torch.eye(len(labels))
    unknown = torch.full_like(assigned, -1)
    return TrainingOutputs(Output(one_hot[y], one_hot[y]), y, Output(one_hot[assigned], one_hot[assigned]), unknown)


@pytest.mark.parametrize(
    ("labels", "predicted", "skew"),
    [
        ([5] * 10, [20] * 10, 0.0),
        ([2, 2], [30, 10], 0.25),
        ([1, 1, 2], [0, 0, 7], 0.5),
        ([25] * 10, SVHN, 0.151),
        ([5] * 10, [round(1000 * 100 ** (-k / 9)) for k in range(10)], 0.489),
        ([2] * 100, [100, 80, 60, 40, 20] + [0] * 95, 0.95),
    ],
)
def test_skew(labels, predicted, skew):
    outputs = make_outputs(labels, predicted)
    assert outputs.skew(len(labels)) == pytest.approx(skew, abs=1e-3)
    assert outputs.labelled_error() == 0


def test_skew_without_unlabelled_images():
    assert make_outputs([2, 2], [0, 0]).skew(2) is None


def make_log(skews, errors):
    """Return a log of which every fifth line has measures of the classifier."""
    lines = [LogLine(step=step, values={"supervised": 0.1}) for step in range(1, 5 * len(skews) + 1)]
    for line, skew, error in zip(lines[4::5], skews, errors, strict=True):
        line.values |= {"skew": skew, "labelled_error": error, "commonest": 0.3}
    return lines


@pytest.mark.parametrize(
    ("skews", "errors", "alarmed"),
    [
        ([0.9, 0.9, 0.9, 0.9], [0.0, 0.0, 0.0, 0.0], True),
        ([0.3, 0.9, 0.9, 0.9, 0.9], [40.0, 0.0, 0.0, 0.0, 0.0], True),
        ([0.9, 0.9, 0.5, 0.9], [0.0, 0.0, 0.0, 0.0], False),  # it recovers
        ([0.9, 0.9, 0.9, 0.9], [95.0, 90.0, 60.0, 30.0], False),  # the labels are not learnt yet
        ([0.9, 0.9, 0.9], [0.0, 0.0, 0.0], False),  # too early to say
        ([0.15, 0.16, 0.15, 0.14], [0.0, 0.0, 0.0, 0.0], False),  # balanced labels of SVHN
        ([0.49, 0.5, 0.48, 0.49], [0.0, 0.0, 0.0, 0.0], False),  # unlabelled classes that fall to 1 : 100
        ([None, None, None, None], [0.0, 0.0, 0.0, 0.0], False),
    ],
)
def test_an_alarm_for_skewed_predictions(skews, errors, alarmed):
    log, recipe = make_log(skews, errors), make_recipe("vat+entropy", "adversarial")
    alarm = find_alarm(log, recipe)
    assert (alarm is not None) == alarmed
    if alarm is not None:
        assert "The predictions are skewed" in alarm
        assert "--set method.vat.weight=0.5 --set method.entropy.weight=0.5 --set align.weight=0.5" in alarm
        log[-1].warning = alarm
        assert find_alarm(log, recipe) is None
    assert find_alarm(make_log(skews, errors), make_recipe("supervised")) is None
