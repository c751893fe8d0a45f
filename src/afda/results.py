"""What is reported of a classifier: while it trains, from validation images; at the end, once, from the test images."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from afda.classifier import Output
from afda.data.images import DataSet, Images
from afda.data.split import Split
from afda.inference import Familiar, Model, outputs, read_tensors
from afda.measures import best_temperature, class_errors, confusion, error_rate, mmd2, risk_bound
from afda.methods import joined
from afda.recipe import Recipe
from afda.runs import SNAPSHOT, Run
from afda.runtime import Runtime

TRACED = 2000
"""Images of a kind (labelled, unlabelled, for validation) looked at while training."""
MEASURED = 100_000
"""Labelled and unlabelled images looked at in the end: all of them, but for very large sets."""
CALIBRATED_FROM = 20
"""Validation images that it takes to fit a temperature."""


def errors(logits: Tensor, y: Tensor, classes: tuple[str, ...]) -> dict[str, Any]:
    """Error in percent, overall and per class, and the confusion matrix."""
    matrix = confusion(logits.argmax(dim=1), y, len(classes))
    per_class = dict(zip(classes, class_errors(matrix), strict=True))
    return {"error": error_rate(logits.argmax(dim=1), y), "class_errors": per_class, "confusion": matrix.tolist()}


def validation_images(data: DataSet, split: Split) -> Images | None:
    if len(split.validation):
        return data.train[torch.from_numpy(split.validation)]
    return data.val


@dataclass(frozen=True)
class Look:
    """The classifier's outputs for the labelled images and for some or all of the unlabelled ones."""

    labelled: Output
    y_labelled: Tensor
    unlabelled: Output
    y_unlabelled: Tensor

    @classmethod
    def at(cls, model: Model, data: DataSet, split: Split, runtime: Runtime, most: int, seed: int) -> "Look":
        """With at most this many labelled and unlabelled images, chosen by the seed."""
        i, j = (torch.from_numpy(sample(rows, most, seed)) for rows in (split.labelled, split.unlabelled))
        x, y = data.train.x, data.train.y
        return cls(outputs(model, x, runtime, rows=i), y[i], outputs(model, x, runtime, rows=j), y[j])

    def commonest(self) -> float:
        """The share of the images that are taken for the class that is predicted most."""
        predicted = joined([self.labelled, self.unlabelled]).logits.argmax(dim=1)
        return round(float(predicted.bincount().max()) / len(predicted), 6)

    def alignment(self, model: Model) -> dict[str, Any]:
        """The fit to the labelled images, MMD^2 to the unlabelled ones, and Theorem 1 if their labels are known."""
        enough = len(self.y_unlabelled) > 1
        return {
            "labelled_error": error_rate(self.labelled.logits.argmax(dim=1), self.y_labelled),
            "mmd2": float(mmd2(self.labelled.features, self.unlabelled.features)) if enough else None,
            "bound": bound(model, self.labelled, self.y_labelled, self.unlabelled, self.y_unlabelled),
        }


def bound(model: Model, l: Output, y_l: Tensor, u: Output, y_u: Tensor) -> dict[str, float] | None:  # noqa: E741
    """Theorem 1, if the true label of every unlabelled image is known, as it is in a benchmark."""
    if not len(y_u) or (y_u < 0).any():
        return None
    weight, bias = (p.cpu() for p in model.classifier.linear())
    return risk_bound(l.features, y_l, u.features, y_u, weight, bias).as_dict()


def trace(model: Model, recipe: Recipe, data: DataSet, split: Split, runtime: Runtime) -> dict[str, Any]:
    """A look at the classifier in mid-training. It never sees the test set."""
    look = Look.at(model, data, split, runtime, TRACED, recipe.seed)
    line = {**look.alignment(model), "commonest": look.commonest()}
    validation = validation_images(data, split)
    if validation is not None:
        rows = torch.from_numpy(sample(np.arange(len(validation)), TRACED, recipe.seed))
        predicted = outputs(model, validation.x, runtime, rows=rows).logits.argmax(dim=1)
        line["val_error"] = error_rate(predicted, validation.y[rows])
    return line


def sample(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).permutation(rows)[:most])


def test_curve(model: Model, run: Run, data: DataSet, runtime: Runtime) -> dict[str, float] | None:
    """The test error of each snapshot by its step. Like `final`, it is called after the last update."""
    if data.test is None:
        return None
    of_snapshot = copy.deepcopy(model)
    of_snapshot.familiar = None  # snapshots have none
    found = {}
    for path in run.path.glob(f"{SNAPSHOT}*.safetensors"):
        of_snapshot.load_state_dict(read_tensors(path))
        predicted = outputs(of_snapshot, data.test.x, runtime).logits.argmax(dim=1)
        found[int(path.stem.removeprefix(SNAPSHOT))] = error_rate(predicted, data.test.y)
    return {str(step): found[step] for step in sorted(found)}


def final(model: Model, recipe: Recipe, data: DataSet, split: Split, runtime: Runtime) -> dict[str, Any]:
    """The result of a run. The test set is opened here and in `test_curve`, after the last update.

    On the way the model learns its temperature, from the validation images, and what is familiar to it, from the
    training images.
    """
    look = Look.at(model, data, split, runtime, MEASURED, recipe.seed)
    model.familiar = Familiar.of(joined([look.labelled, look.unlabelled]))
    validation = validation_images(data, split)
    of_validation = of_test = None
    if validation is not None:
        logits = outputs(model, validation.x, runtime).logits
        of_validation = errors(logits, validation.y, data.classes)
        if len(validation) >= CALIBRATED_FROM:
            model.temperature = best_temperature(logits, validation.y)
    if data.test is not None:
        of_test = errors(outputs(model, data.test.x, runtime).logits, data.test.y, data.classes)
    return {
        "test_error": of_test and of_test["error"],
        "val_error": of_validation and of_validation["error"],
        **look.alignment(model),
        "labels": len(split.labelled),
        "unlabelled": len(split.unlabelled),
        "seed": recipe.seed,
        "steps": recipe.steps,
        "temperature": model.temperature,
        "test": of_test,
        "validation": of_validation,
    }
