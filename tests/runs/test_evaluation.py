"""Evaluation and prediction leave the model as it is, and give what was trained."""

import csv
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from afda import train
from afda.data.arrays import from_arrays
from afda.errors import UserError
from afda.machine.runtime import Runtime
from afda.measures import fit_temperature
from afda.recipes import recipe
from afda.runs.evaluate import evaluate_run
from afda.runs.model import compute_outputs, load_model
from afda.runs.predict import predict_to_file
from afda.runs.results import evaluate_final, measure_progress, select_validation

CPU = Runtime(torch.device("cpu"), "float32")


@pytest.fixture(scope="module")
def data(digits):
    x, y = digits.train.x[:400, 0].numpy(), digits.train.y[:400].numpy()
    return from_arrays(x, np.where(np.arange(400) < 250, y, -1), classes=list(digits.classes))


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """Return a finished run on some digits, with a temperature and an out-of-distribution detector."""
    settings = ["steps=3", "net=small", "net.width=0.25", "align.hidden=8", "labels=100", "validation=true"]
    return train(recipe("own-images", data).with_settings(settings), data, tmp_path_factory.mktemp("runs") / "run")


def copy_state(model):
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return tensors, model.training, model.temperature, model.out_of_distribution


def assert_unchanged(model, before):
    after = copy_state(model)
    assert after[1:] == before[1:]
    assert after[0].keys() == before[0].keys()
    assert all(torch.equal(after[0][name], before[0][name]) for name in before[0])


@pytest.mark.parametrize("mode", [True, False])
def test_evaluation_changes_no_model(run, data, mode):
    model, _ = load_model(run.path)
    made = run.read_recipe()
    model.temperature, model.out_of_distribution = 1.0, None
    model.train(mode)
    before = copy_state(model)
    split = made.split_of(data)
    compute_outputs(model, data.train.x[:10], CPU)
    measure_progress(model, made, data, split, CPU)
    final = evaluate_final(model, made, data, split, CPU, seconds=2.0)
    assert_unchanged(model, before)
    assert final.result.seconds == 2.0
    assert final.result.temperature != 1
    assert final.out_of_distribution is not None


def test_the_saved_model_has_the_calibration_of_the_result(run, data):
    model, _ = load_model(run.path)
    validation = select_validation(data, run.read_recipe().split_of(data))
    logits = compute_outputs(model, validation.x, CPU).logits
    assert model.temperature == run.read_result().temperature == run.read_model_card().temperature
    assert model.temperature == pytest.approx(fit_temperature(logits, validation.y), rel=1e-3)
    assert model.out_of_distribution is not None
    names = load_file(run.path / "model.safetensors").keys()
    assert {"familiar.means", "familiar.whitening", "familiar.limit"} <= names  # as in version 0.1
    assert not any(name.startswith("out_of_distribution") for name in names)


def test_scores_name_the_misclassified_images(run):
    scores = run.read_result().validation
    assert len(scores.misclassified) == scores.wrong


def test_evaluate_run(run, digits, tmp_path):
    path = tmp_path / "other.npz"
    np.savez(path, x=digits.test.x[:50, 0].numpy(), y=digits.test.y[:50].numpy())
    evaluation = evaluate_run(run.path, str(path), CPU)
    printed = evaluation.to_dict()
    assert list(printed) == ["run", "data", "images", "error", "balanced_error", "class_errors", "confusion"]
    assert (printed["run"], printed["data"], printed["images"]) == (str(run.path), "other", 50)
    assert printed["error"] == evaluation.scores.error == pytest.approx(2 * evaluation.scores.wrong)


def test_predict_to_file(run, digits, tmp_path):
    np.savez(tmp_path / "some.npz", x=digits.test.x[:5, 0].numpy())
    (tmp_path / "broken.png").write_bytes(b"no image")
    images = [str(tmp_path / "some.npz"), str(tmp_path / "broken.png")]
    out, seen = tmp_path / "p.csv", []
    summary = predict_to_file(run.path, images, out, runtime=CPU, progress=seen.append)
    assert (summary.file, summary.images, summary.skipped, summary.calibrated) == (out, 5, 1, True)
    assert sum(summary.classes.values()) == 5
    assert seen == [5]
    assert summary.skipped_file == tmp_path / "p.csv-skipped.csv"
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    probabilities = [f"p_{name}" for name in digits.classes]
    assert list(rows[0]) == ["path", "label", "confidence", "unlike_training", *probabilities]
    assert summary.unlike == sum(int(row["unlike_training"]) for row in rows)
    assert json.dumps(summary.to_dict()).startswith(f'{{"file": "{out}", "images": 5, "classes": {{')

    with pytest.raises(UserError, match="already exists"):
        predict_to_file(run.path, images[:1], out, runtime=CPU)
    summary = predict_to_file(run.path, images[:1], out, runtime=CPU, overwrite=True)
    assert (summary.skipped, summary.skipped_file) == (0, None)
    assert not (tmp_path / "p.csv-skipped.csv").exists()
    with pytest.raises(UserError, match=r"There is no readable image in .*; the first: .*broken\.png"):
        predict_to_file(run.path, images[1:], tmp_path / "none.csv", runtime=CPU)
    assert not (tmp_path / "none.csv").exists()
