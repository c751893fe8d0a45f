"""Schemas of a run's files: what is accepted, and that reading and writing keeps the content."""

import json
from pathlib import Path

import pytest

from afda.errors import UserError
from afda.runs.directory import Run
from afda.runs.log import LogLine
from afda.runs.schemas import Environment, Result

OLD = Path(__file__).parents[1] / "fixtures" / "run-0.1"
RESULT = {"test_error": 5.0, "val_error": None, "mmd2": 0.1, "labels": 20, "unlabelled": 80, "seconds": 1.5}
RESULT |= {"images_per_second": 100.0}
SCORES = {"error": 25.0, "class_errors": {"a": 50.0, "b": 0.0}, "confusion": [[1, 1], [0, 2]]}


@pytest.mark.parametrize("name", ["digits", "own"])
def test_files_of_version_0_1_are_kept_as_they_are(name):
    run = Run(OLD / name)
    for file in (run.read_result(), run.read_environment(), run.read_split(), run.read_model_card()):
        stored = {
            "Result": "result.json",
            "Environment": "environment.json",
            "SplitIndices": "split.json",
            "ModelCard": "model.json",
        }[type(file).__name__]
        text = (run.path / stored).read_text()
        assert json.dumps(file.to_dict(), indent=2) + "\n" == text
    lines = (run.path / "log.jsonl").read_text().splitlines()
    assert [line.to_dict() for line in run.log.read()] == [json.loads(line) for line in lines]


def test_result():
    result = Result.model_validate({**RESULT, "validation": SCORES, "note": "of a later version"})
    assert (result.part, result.scores) == ("validation", result.validation)
    assert (result.scores.images, result.scores.wrong) == (4, 1)
    assert result.to_dict() == {**RESULT, "validation": SCORES, "note": "of a later version"}
    result = Result.model_validate({**RESULT, "test": SCORES, "validation": SCORES})
    assert (result.part, result.scores) == ("test", result.test)
    assert Result.model_validate(RESULT).part is None


def test_balanced_error():
    """Classes without images are left out; a file that lacks it is written back without it."""
    classes = {"a": 50.0, "b": 0.0, "c": None}
    uneven = {"error": 10.0, "class_errors": classes, "confusion": [[1, 0, 1], [0, 8, 0], [0, 0, 0]]}
    old = {**RESULT, "test": uneven, "validation": SCORES}
    result = Result.model_validate(old)
    assert result.balanced_error == result.test.balanced_error == 25.0
    assert result.to_dict() == old
    assert Result.model_validate({**old, "balanced_error": 24.0}).balanced_error == 24.0
    assert Result.model_validate(RESULT).balanced_error is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"test_error": "5"},
        {"test_error": 101.0},
        {"labels": -1},
        {"labels": True},
        {"seconds": None},
        {"test_curve": {"step": 1.0}},
        {"test": {**SCORES, "confusion": [[1, 1]]}},
        {"test": {**SCORES, "confusion": [[0, 0], [0, 0]]}},
    ],
)
def test_wrong_results_are_refused(tmp_path, wrong):
    Run(tmp_path).write_json("result.json", RESULT | wrong)
    with pytest.raises(UserError, match=r"has no readable result\.json"):
        Run(tmp_path).read_result()


@pytest.mark.parametrize("shape", [[], [2, 8, 8], [8, 8], [1, 0, 8], [3, 10**6, 10**6], "3"])
def test_impossible_shapes_are_refused(tmp_path, shape):
    Run(tmp_path).write_json("model.json", {"classes": ["a", "b"], "shape": shape, "net": {"name": "mlp"}})
    with pytest.raises(UserError, match=r"has no readable model\.json"):
        Run(tmp_path).read_model_card()


def test_environment_defaults():
    environment = Environment()
    assert (environment.input_shape, environment.to_dict()) == (None, {})
    assert Environment(shape=[3, 8, 8]).input_shape == (3, 8, 8)


def test_log_line():
    stored = {"step": 5, "supervised": 0.5, "mmd2": None, "seconds": 1.5, "bound": None, "warning": "It collapsed."}
    line = LogLine.from_dict(stored)
    assert (line.step, line.seconds, line.warning) == (5, 1.5, "It collapsed.")
    assert line.values == {"supervised": 0.5, "mmd2": None}
    assert line.to_dict() == stored
    assert LogLine(step=1).to_dict() == {"step": 1}
    assert LogLine.from_dict({"step": 1, "bound": {"gap": 0.5}, "values": 2.0}).values == {"values": 2.0}


@pytest.mark.parametrize(
    "stored",
    [
        *(7, [], {}, {"steq": 1}, {"step": True}, {"step": 1.5}, {"step": 1, "a": "b"}, {"step": 1, "a": True}),
        *({"step": 1, "seconds": None}, {"step": 1, "bound": {"gap": None}}, {"step": 1, "warning": 2}),
    ],
)
def test_other_lines_are_refused(stored):
    with pytest.raises(ValueError, match=r"LogLine|line of the log"):
        LogLine.from_dict(stored)
