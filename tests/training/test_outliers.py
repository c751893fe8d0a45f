"""Unlabelled images that are unlike the labelled ones: found, drawn less often, counted and listed."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from afda.data.arrays import from_arrays
from afda.recipes import recipe
from afda.runs.directory import Run
from afda.runs.pool import describe_shift
from afda.training import outliers
from afda.training.outliers import compute_p_values, weigh_pool
from afda.training.run import train
from afda.training.state import begin
from contract import CPU
from small_runs import assert_same, make_light_recipe, read_weights, train_until

CLASSES, LABELS, POOL = 4, 8, 300


def make_vectors(strange=0, seed=0):
    """Return Gaussian classes, some of which, the last `strange` vectors of the pool, are of another kind."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(0, 2, (CLASSES + 2, 10))
    truth = np.concatenate([np.repeat(np.arange(CLASSES), LABELS), random.integers(0, CLASSES, POOL)])
    truth[len(truth) - strange :] = random.integers(CLASSES, CLASSES + 2, strange)
    x = centres[truth] + random.normal(size=(len(truth), 10))
    y = np.where(np.arange(len(truth)) < CLASSES * LABELS, truth, -1)
    return from_arrays(x.astype(np.float32), y, classes=list("abcd"))


def make_recipe(data, *settings):
    return recipe("own-vectors", data, "entropy", "none").with_settings(["steps=60", *settings])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_are_one_in_a_clean_pool(tmp_path, seed):
    data = make_vectors(seed=seed)
    assert make_recipe(data).outliers == "down-weight"
    run = train(make_recipe(data), data, tmp_path / "run", on=CPU)
    assert run.read_result().outlier_share == 0
    assert not (run.path / "unlike.csv").exists()
    kept = train(make_recipe(data, "outliers=keep"), data, tmp_path / "kept", on=CPU)
    assert kept.read_result().outlier_share is None
    assert read_weights(run) == read_weights(kept)


def test_outliers_are_found_and_listed(tmp_path):
    data = make_vectors(strange=120)
    training = begin(make_recipe(data), data, CPU)
    weigh_pool(training)
    weights = training.pool_weights
    assert weights[: POOL - 120].mean() > 0.7
    assert weights[POOL - 120 :].mean() < 0.3
    assert training.outlier_share == pytest.approx(0.4, abs=0.12)
    drawn = np.concatenate([training.batches.draw(step).j.numpy() for step in range(50)])
    assert (drawn >= len(data.train) - 120).mean() < 0.25

    run = train(make_recipe(data), data, tmp_path / "run", on=CPU)
    assert run.read_result().outlier_share == pytest.approx(training.outlier_share, abs=1e-4)
    with (run.path / "unlike.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "weight", "confidence"]
    assert [float(row["weight"]) for row in rows] == sorted(float(row["weight"]) for row in rows)
    strange = [int(row["row"]) >= len(data.train) - 120 for row in rows]
    assert np.mean(strange) > 0.7
    assert sum(strange) > 80
    about = f"About {100 * training.outlier_share:.0f} % of the unlabelled images are unlike"
    assert [about in line.warning for line in run.log.read() if line.warning] == [True]


def test_shares_that_differ_from_those_of_the_labels(tmp_path):
    data = make_vectors()
    few = replace(data, train=data.train[torch.cat([torch.arange(32), 32 + torch.nonzero(make_truth() < 2).flatten()])])
    result = train(make_recipe(few), few, tmp_path / "run", on=CPU).read_result()
    assert result.share_shift > 0.3
    assert result.estimated_shares["a"] + result.estimated_shares["b"] > 0.8
    assert "Label some images that are drawn at random." in describe_shift(result)
    same = train(make_recipe(data), data, tmp_path / "same", on=CPU).read_result()
    assert describe_shift(same) is None


def make_truth():
    """Return the classes of the pool of `make_vectors`."""
    return torch.from_numpy(np.random.default_rng(0).integers(0, CLASSES, POOL))


def test_too_few_labels_to_compare_with():
    data = make_vectors(strange=120)
    y = data.train.y.clone()
    y[torch.arange(len(y)) % 2 == 1] = -1  # 16 labels
    training = begin(make_recipe(data), replace(data, train=replace(data.train, y=y)), CPU)
    weigh_pool(training)
    assert training.pool_weights.eq(1).all()


def test_p_values():
    """The share of held-out distances, and of the image itself, that are at least as large."""
    held_out, counts = torch.tensor([0.1, 0.5, 0.3]).double(), torch.tensor([1.0, 2.0, 3.0]).double()
    found = compute_p_values(torch.tensor([[0.0, 0.3, 0.4, 0.9]]).double(), held_out, counts)
    assert found.tolist() == [pytest.approx([1.0, 7 / 8, 4 / 8, 2 / 8])]


def test_weights_survive_a_stop(some_digits, tmp_path, monkeypatch):
    monkeypatch.setattr(outliers, "NOISE", -100.0)  # as if there were outliers
    made = make_light_recipe(some_digits, "vat+entropy", "adversarial", "outliers=down-weight")
    whole = train_until(made, some_digits, tmp_path / "whole")
    for step in (1, 5, 11):
        train_until(made, some_digits, tmp_path / "parts", stop_at=step)
        monkeypatch.setattr(outliers, "train_folds", None)  # what is known is not estimated again
    weights = Run(tmp_path / "parts").read_checkpoint()["pool_weights"]
    assert weights.min() < 1
    assert_same(whole, train_until(made, some_digits, tmp_path / "parts"))
    kept = train_until(made.with_settings(["outliers=keep"]), some_digits, tmp_path / "kept")
    assert read_weights(kept) != read_weights(whole)


def test_a_pool_of_nothing_but_outliers_still_trains(tmp_path):
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = np.concatenate([random.normal(size=(120, 8)) + 4 * np.eye(3, 8)[y], -30 + random.normal(size=(60, 8))])
    data = from_arrays(x.astype(np.float32), np.concatenate([y, np.full(60, -1)]))
    made = recipe("own-vectors", data, "vat", "none").with_settings(["steps=60"])
    result = train(made, data, tmp_path / "run", on=CPU).read_result()
    assert result.outlier_share > 0.9
    assert sum(result.estimated_shares.values()) == pytest.approx(1, abs=1e-3)
