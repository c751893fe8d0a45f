"""What is reported of a classifier: while it trains, from validation images; at the end, once, from the test images."""

import copy
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from afda.classifier import Output
from afda.data.images import DataSet, Images
from afda.data.split import Split
from afda.inference import SNAPSHOT, Model, outputs
from afda.measures import class_errors, confusion, error_rate, mmd2, risk_bound
from afda.recipe import Recipe
from afda.runs import Run
from afda.runtime import Runtime

TRACED = 2000
"""Unlabelled images looked at while training; at the end it is all of them."""


def errors(logits: Tensor, y: Tensor, classes: tuple[str, ...]) -> dict[str, Any]:
    """Error in percent, overall and per class, and the confusion matrix."""
    matrix = confusion(logits.argmax(dim=1), y, len(classes))
    per_class = dict(zip(classes, class_errors(matrix), strict=True))
    return {"error": error_rate(logits.argmax(dim=1), y), "class_errors": per_class, "confusion": matrix.tolist()}


def validation_images(data: DataSet, split: Split) -> Images | None:
    if len(split.validation):
        return data.train[torch.from_numpy(split.validation)]
    return data.val


def alignment(model: Model, labelled: Images, unlabelled: Images, runtime: Runtime) -> dict[str, Any]:
    """The fit to the labelled images, MMD^2 to the unlabelled ones, and Theorem 1 where their true labels are known."""
    of_labelled = outputs(model, labelled.x, runtime)
    of_unlabelled = outputs(model, unlabelled.x, runtime)
    discrepancy = float(mmd2(of_labelled.features, of_unlabelled.features)) if len(unlabelled) > 1 else None
    return {
        "labelled_error": error_rate(of_labelled.logits.argmax(dim=1), labelled.y),
        "mmd2": discrepancy,
        "bound": bound(model, of_labelled, labelled.y, of_unlabelled, unlabelled.y),
    }


def bound(model: Model, l: Output, y_l: Tensor, u: Output, y_u: Tensor) -> dict[str, float] | None:  # noqa: E741
    """Theorem 1, if the true label of every unlabelled image is known, as it is in a benchmark."""
    if not len(y_u) or (y_u < 0).any():
        return None
    weight, bias = (p.cpu() for p in model.classifier.linear())
    return risk_bound(l.features, y_l, u.features, y_u, weight, bias).as_dict()


def trace(model: Model, recipe: Recipe, data: DataSet, split: Split, runtime: Runtime) -> dict[str, Any]:
    """A look at the classifier in mid-training. It never sees the test set."""
    labelled = data.train[torch.from_numpy(split.labelled)]
    chosen = np.sort(np.random.default_rng(recipe.seed).permutation(split.unlabelled)[:TRACED])
    line = alignment(model, labelled, data.train[torch.from_numpy(chosen)], runtime)
    validation = validation_images(data, split)
    if validation is not None:
        line["val_error"] = error_rate(outputs(model, validation.x, runtime).logits.argmax(dim=1), validation.y)
    return line


def test_curve(model: Model, run: Run, data: DataSet, runtime: Runtime) -> dict[str, float] | None:
    """The test error of each snapshot by its step. Like `final`, it is called after the last update."""
    if data.test is None:
        return None
    of_snapshot = copy.deepcopy(model)
    found = {}
    for path in run.path.glob(f"{SNAPSHOT}*.safetensors"):
        of_snapshot.load_state_dict(load_file(path))
        predicted = outputs(of_snapshot, data.test.x, runtime).logits.argmax(dim=1)
        found[int(path.stem.removeprefix(SNAPSHOT))] = error_rate(predicted, data.test.y)
    return {str(step): found[step] for step in sorted(found)}


def final(model: Model, recipe: Recipe, data: DataSet, split: Split, runtime: Runtime) -> dict[str, Any]:
    """The result of a run. The test set is opened here and in `test_curve`, after the last update."""
    labelled = data.train[torch.from_numpy(split.labelled)]
    unlabelled = data.train[torch.from_numpy(split.unlabelled)]
    validation = validation_images(data, split)
    of_validation = of_test = None
    if validation is not None:
        of_validation = errors(outputs(model, validation.x, runtime).logits, validation.y, data.classes)
    if data.test is not None:
        of_test = errors(outputs(model, data.test.x, runtime).logits, data.test.y, data.classes)
    return {
        "test_error": of_test and of_test["error"],
        "val_error": of_validation and of_validation["error"],
        **alignment(model, labelled, unlabelled, runtime),
        "labels": len(split.labelled),
        "unlabelled": len(split.unlabelled),
        "seed": recipe.seed,
        "steps": recipe.steps,
        "test": of_test,
        "validation": of_validation,
    }
