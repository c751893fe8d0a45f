"""Panels about a model's predictions: errors per class, mistakes and calibration."""

from dataclasses import dataclass

import numpy as np
import torch

from afda.measures import confusion_matrix
from afda.report.load_runs import LoadedRun
from afda.report.pictures import PictureCollector
from afda.runs.model import compute_probabilities
from afda.runs.results import FEWEST_TO_CALIBRATE
from afda.runs.schemas import Scores
from afda.runs.statistics import Calibration, Interval, measure_calibration, wilson_interval

MISTAKES = 24


@dataclass(frozen=True)
class ClassError:
    """The error of one class in percent; None if it has no images."""

    error: float | None
    images: int
    interval: Interval | None


@dataclass(frozen=True)
class Mistakes:
    """The misclassified images with the highest confidence."""

    count: int
    """Misclassified images in all."""
    images: list[int]
    """The position of each among the evaluated images."""
    names: list[str]
    true: list[int]
    predicted: list[int]
    confidence: list[float]
    pictures: list[int] | None
    sheet: int | None


@dataclass(frozen=True)
class CalibrationPanel:
    """The calibration of the plain softmax and, if a temperature was fitted, with that temperature."""

    before: Calibration
    after: Calibration | None
    temperature: float
    fitted_to: str
    """What the temperature was fitted to."""


def list_class_errors(scores: Scores | None) -> list[ClassError]:
    """Return the error of each class with its interval."""
    if scores is None:
        return []
    matrix = np.array(scores.confusion)
    return [
        ClassError(error, int(images), wilson_interval(int(images - correct), int(images)))
        for error, images, correct in zip(
            scores.class_errors.values(), matrix.sum(axis=1), matrix.diagonal(), strict=True
        )
    ]


def count_changed_predictions(run: LoadedRun) -> int:
    """Return how many predictions at least differ from those recorded, as they may on another machine."""
    if run.predictions is None or run.scores is None:
        return 0
    recorded = np.array(run.scores.confusion)
    now = confusion_matrix(run.predictions.logits.argmax(dim=1), run.predictions.images.y, len(recorded)).numpy()
    return int(np.abs(recorded - now).sum()) // 2


def list_mistakes(run: LoadedRun, pictures: PictureCollector) -> Mistakes | None:
    """Return the misclassified images with the highest confidence; None without predictions."""
    if run.predictions is None or run.data is None or run.model is None:
        return None
    images = run.predictions.images
    confidence, predicted = compute_probabilities(run.model, run.predictions.logits).max(dim=1)
    wrong = torch.nonzero(predicted != images.y).flatten()
    chosen = wrong[confidence[wrong].argsort(descending=True, stable=True)][:MISTAKES]
    rows: list[int] = chosen.tolist()
    return Mistakes(
        count=len(wrong),
        images=rows,
        names=[images.name(row) for row in rows],
        true=images.y[chosen].tolist(),
        predicted=predicted[chosen].tolist(),
        confidence=[round(float(c), 3) for c in confidence[chosen]],
        pictures=pictures.add(run.data, run.predictions.part, run.predictions.rows[rows].tolist()),
        sheet=pictures.sheet_number(run.data),
    )


def assess_calibration(run: LoadedRun) -> CalibrationPanel | None:
    """Return the calibration of a run's predictions; None without them."""
    if run.predictions is None or run.model is None:
        return None
    logits = run.predictions.logits
    correct = (logits.argmax(dim=1) == run.predictions.images.y).numpy()

    def measure(temperature: float) -> Calibration:
        confidence = (logits / temperature).softmax(dim=1).amax(dim=1)
        return measure_calibration(confidence.double().numpy(), correct)

    temperature = run.model.temperature
    # As in `evaluate_final`.
    validation = run.result.validation
    on_validation = validation is not None and validation.images >= FEWEST_TO_CALIBRATE
    fitted_to = (
        "validation images" if on_validation or run.selection is None else "held-out predictions for labelled images"
    )
    return CalibrationPanel(measure(1.0), measure(temperature) if temperature != 1 else None, temperature, fitted_to)
