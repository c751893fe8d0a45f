"""Measures of a classifier: during training on validation images, and once, after training, on the test images."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from afda.data.images import DataSet, Images
from afda.data.shares import estimate_shares
from afda.data.split import Split
from afda.machine.runtime import Runtime
from afda.measures import class_errors, confusion_matrix, error_rate, fit_temperature, mmd2, risk_bound
from afda.nets import Output
from afda.recipe import Recipe
from afda.runs.directory import SNAPSHOT, Run
from afda.runs.log import LogLine
from afda.runs.model import Model, OutOfDistribution, compute_outputs, read_tensors
from afda.runs.schemas import Result, Scores
from afda.runs.selection import Selection

PROGRESS_SAMPLE = 2000
"""The most labelled, unlabelled and validation images that are evaluated during training, of each kind."""
FINAL_SAMPLE = 100_000
"""The most labelled and unlabelled images that are evaluated after training: all, except in very large sets."""
FEWEST_TO_CALIBRATE = 20
"""The fewest validation images that a temperature is fitted to."""


def compute_scores(logits: Tensor, y: Tensor, classes: tuple[str, ...]) -> Scores:
    """Return the error in percent, overall and per class, the confusion matrix, and the misclassified images."""
    predicted = logits.argmax(dim=1)
    matrix = confusion_matrix(predicted, y, len(classes))
    return Scores(
        error=error_rate(predicted, y),
        class_errors=dict(zip(classes, class_errors(matrix), strict=True)),
        confusion=matrix.tolist(),
        misclassified=torch.nonzero(predicted != y).flatten().tolist(),
    )


def select_validation(data: DataSet, split: Split) -> Images | None:
    """Return the validation images: those that the split holds out, or else those that the data set brings."""
    if len(split.validation):
        return data.train[torch.from_numpy(split.validation)]
    return data.val


@dataclass(frozen=True)
class TrainingOutputs:
    """The classifier's outputs for labelled and unlabelled training images, with their true labels."""

    labelled: Output
    y_labelled: Tensor
    unlabelled: Output
    y_unlabelled: Tensor

    @classmethod
    def compute(
        cls, model: Model, data: DataSet, split: Split, runtime: Runtime, *, most: int, seed: int
    ) -> "TrainingOutputs":
        """Evaluate at most `most` labelled and as many unlabelled images, drawn by the seed."""
        i, j = (torch.from_numpy(sample_rows(rows, most, seed)) for rows in (split.labelled, split.unlabelled))
        x, y = data.train.x, data.train.y
        labelled, unlabelled = (compute_outputs(model, x, runtime, rows=rows) for rows in (i, j))
        return cls(labelled, y[i], unlabelled, y[j])

    @property
    def all(self) -> Output:
        """The outputs for all images, the labelled ones first."""
        parts = (self.labelled, self.unlabelled)
        return Output(torch.cat([p.logits for p in parts]), torch.cat([p.features for p in parts]))

    def share_of_commonest_class(self) -> float:
        """Return the share of images that are assigned to the class that is predicted most often."""
        predicted = self.all.logits.argmax(dim=1)
        return round(float(predicted.bincount().max()) / len(predicted), 6)

    def skew(self, classes: int) -> float | None:
        """Return the total variation distance between the predicted shares of the unlabelled images and the labels'."""
        if not len(self.y_unlabelled):
            return None
        predicted, labels = (
            y.bincount(minlength=classes).double() / len(y)
            for y in (self.unlabelled.logits.argmax(dim=1), self.y_labelled)
        )
        return round(float((predicted - labels).abs().sum()) / 2, 6)

    def estimate_shares(
        self, temperature: float, classes: int, weights: Tensor | None = None
    ) -> "SharesEstimate | None":
        """Return the estimated class shares of the unlabelled images, which may have weights; None without them."""
        if not len(self.y_unlabelled):
            return None
        labelled = self.y_labelled.bincount(minlength=classes).double() / len(self.y_labelled)
        estimate = estimate_shares((self.unlabelled.logits.double() / temperature).softmax(dim=1), labelled, weights)
        shift = float((estimate - labelled).abs().sum()) / 2
        return SharesEstimate([round(share, 4) for share in estimate.tolist()], round(min(shift, 1.0), 4))

    def labelled_error(self) -> float:
        return error_rate(self.labelled.logits.argmax(dim=1), self.y_labelled)

    def mmd2(self) -> float | None:
        """Return MMD^2 between the features of labelled and unlabelled images, or None for fewer than two of these."""
        if len(self.y_unlabelled) < 2:
            return None
        return float(mmd2(self.labelled.features, self.unlabelled.features))

    def bound(self, model: Model) -> dict[str, float] | None:
        """Return the terms of Theorem 1, or None unless the labels of all unlabelled images are known."""
        if not len(self.y_unlabelled) or (self.y_unlabelled < 0).any():
            return None
        weight, bias = (p.cpu() for p in model.classifier.fold_linear())
        features_l, features_u = self.labelled.features, self.unlabelled.features
        return risk_bound(features_l, self.y_labelled, features_u, self.y_unlabelled, weight, bias).as_dict()


@dataclass(frozen=True)
class SharesEstimate:
    """Estimated class shares of the unlabelled images, and how far they are from those of the labels."""

    values: list[float]
    shift: float
    """The total variation distance: the share of images that would have to change class."""


@dataclass(frozen=True)
class Progress:
    """Measures of the classifier during training."""

    labelled_error: float
    mmd2: float | None
    bound: dict[str, float] | None
    commonest: float
    """The share of images that are assigned to the class that is predicted most often."""
    skew: float | None
    """The share of unlabelled images that would have to change class to have the class shares of the labels."""
    val_error: float | None

    def add_to(self, line: LogLine) -> None:
        """Add the measures to the line of the log that they belong to."""
        line.values |= {"labelled_error": self.labelled_error, "mmd2": self.mmd2, "commonest": self.commonest}
        line.values["skew"] = self.skew
        line.bound = self.bound
        if self.val_error is not None:
            line.values["val_error"] = self.val_error


def measure_progress(
    model: Model, recipe: Recipe, data: DataSet, split: Split, runtime: Runtime, most: int = PROGRESS_SAMPLE
) -> Progress:
    """Evaluate the classifier during training, on samples of the training and validation images."""
    outputs = TrainingOutputs.compute(model, data, split, runtime, most=most, seed=recipe.seed)
    validation, val_error = select_validation(data, split), None
    if validation is not None:
        rows = torch.from_numpy(sample_rows(np.arange(len(validation)), most, recipe.seed))
        predicted = compute_outputs(model, validation.x, runtime, rows=rows).logits.argmax(dim=1)
        val_error = error_rate(predicted, validation.y[rows])
    return Progress(
        labelled_error=outputs.labelled_error(),
        mmd2=outputs.mmd2(),
        bound=outputs.bound(model),
        commonest=outputs.share_of_commonest_class(),
        skew=outputs.skew(len(data.classes)),
        val_error=val_error,
    )


def sample_rows(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return the rows, or `most` of them drawn by the seed, sorted."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).permutation(rows)[:most])


def compute_test_curve(model: Model, run: Run, data: DataSet, runtime: Runtime) -> dict[str, float] | None:
    """Return the test error of each snapshot by its step. Like `evaluate_final`, it is called after the last update."""
    if data.test is None:
        return None
    snapshot = copy.deepcopy(model)
    snapshot.out_of_distribution = None  # snapshots have none
    errors = {}
    for path in run.path.glob(f"{SNAPSHOT}*.safetensors"):
        snapshot.load_state_dict(read_tensors(path))
        predicted = compute_outputs(snapshot, data.test.x, runtime).logits.argmax(dim=1)
        errors[int(path.stem.removeprefix(SNAPSHOT))] = error_rate(predicted, data.test.y)
    return {str(step): errors[step] for step in sorted(errors)}


@dataclass(frozen=True)
class FinalEvaluation:
    """The result of a run, and the out-of-distribution detector that was fitted to the training images.

    The fitted temperature is `result.temperature`; both belong into the model that is saved.
    """

    result: Result
    out_of_distribution: OutOfDistribution | None


def evaluate_final(
    model: Model,
    recipe: Recipe,
    data: DataSet,
    split: Split,
    runtime: Runtime,
    *,
    seconds: float,
    snapshots: Run | None = None,
    selection: Selection | None = None,
    outlier_share: float | None = None,
    pool_weights: Tensor | None = None,
) -> FinalEvaluation:
    """Evaluate a trained model, which stays as it is, after `seconds` of training.

    The test set is opened here, after the last update, and nowhere else. `snapshots` is the run whose snapshots are
    tested as well. The held-out predictions of a `selection` calibrate the confidences where validation images do not.
    `outlier_share` and the `pool_weights` of unlabelled images are what was found about them before the training.
    """
    outputs = TrainingOutputs.compute(model, data, split, runtime, most=FINAL_SAMPLE, seed=recipe.seed)
    validation, temperature = select_validation(data, split), model.temperature
    on_validation = on_test = None
    held_out = None if selection is None else selection.collect_held_out()
    if selection is not None:
        temperature = selection.fit_temperature() or temperature
    if validation is not None:
        logits = compute_outputs(model, validation.x, runtime).logits
        on_validation = compute_scores(logits, validation.y, data.classes)
        if len(validation) >= FEWEST_TO_CALIBRATE:
            temperature = fit_temperature(logits, validation.y)
    if data.test is not None:
        on_test = compute_scores(compute_outputs(model, data.test.x, runtime).logits, data.test.y, data.classes)
    evaluated = on_test or on_validation
    if pool_weights is not None:
        evaluated_rows = sample_rows(split.unlabelled, FINAL_SAMPLE, recipe.seed)
        pool_weights = pool_weights[torch.from_numpy(np.isin(split.unlabelled, evaluated_rows))]
    shares = outputs.estimate_shares(temperature, len(data.classes), pool_weights)
    result = Result(
        test_error=on_test.error if on_test is not None else None,
        val_error=on_validation.error if on_validation is not None else None,
        labelled_error=outputs.labelled_error(),
        balanced_error=evaluated.balanced_error if evaluated is not None else None,
        mmd2=outputs.mmd2(),
        bound=outputs.bound(model),
        labels=len(split.labelled),
        unlabelled=len(split.unlabelled),
        seed=recipe.seed,
        steps=recipe.steps,
        temperature=temperature,
        test=on_test,
        validation=on_validation,
        cross_validation=None if held_out is None else compute_scores(*held_out, data.classes),
        seconds=round(seconds, 2),
        images_per_second=round(recipe.steps * recipe.images_per_step / max(seconds, 1e-9), 1),
        outlier_share=None if outlier_share is None else round(outlier_share, 4),
        estimated_shares=None if shares is None else dict(zip(data.classes, shares.values, strict=True)),
        share_shift=None if shares is None else shares.shift,
        test_curve=compute_test_curve(model, snapshots, data, runtime) if snapshots is not None else None,
    )
    return FinalEvaluation(result, OutOfDistribution.fit(outputs.all))
