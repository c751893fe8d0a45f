"""Statistics of classification errors: confidence intervals, tests of differences and calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Interval = tuple[float, float]
"""Lower and upper end, in percent."""
BINS = 10


@dataclass(frozen=True)
class CalibrationBin:
    """The images whose confidence lies in one tenth of [0, 1], with their mean confidence and their accuracy."""

    images: int
    confidence: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class Calibration:
    """How well confidences agree with accuracies; all but the bins in percent."""

    bins: list[CalibrationBin]
    ece: float
    """The expected calibration error."""
    confidence: float
    accuracy: float


def wilson_interval(wrong: int, images: int) -> Interval | None:
    """Return the 95 % interval (Wilson, 1927) of an error when `wrong` of `images` are misclassified.

    None without images.
    """
    if not images:
        return None
    from scipy.stats import binomtest

    interval = binomtest(wrong, images).proportion_ci(0.95, method="wilson")
    return 100.0 * float(interval.low), 100.0 * float(interval.high)


def mcnemar_test(only_first: int, only_second: int) -> float:
    """Return the p-value of the exact McNemar test of two classifiers on the same images.

    The arguments count the images that only one of the two classifies correctly. The p-value is the probability of a
    split at least as uneven if both were equally good.
    """
    if not only_first + only_second:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(only_first, only_first + only_second, 0.5).pvalue)


def corrected_t_test(differences: Sequence[float], ratio: float, grain: float) -> float:
    """Return the two-sided p-value of the mean of cross-validated differences, one per fold (Nadeau and Bengio, 2003).

    `ratio` is the size of a fold by that of the rest. Trainings share most of their images, so the variance of the mean
    is larger than that of independent ones. `grain` is the smallest step of a difference, one image: few folds often
    differ by the same number of images by chance, so their standard deviation counts as at least half a step. With
    fewer than two folds, or no difference at all, the value is 1.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not values.any():
        return 1.0
    from scipy.stats import t

    error = max(values.std(ddof=1), grain / 2) * math.sqrt(1 / len(values) + ratio)
    return float(2 * t.sf(abs(values.mean()) / error, len(values) - 1))


def welch_t_test(first: Sequence[float], second: Sequence[float], grain: float) -> float:
    """Return the two-sided p-value of the difference between the mean errors of two sets of trainings (Welch, 1947).

    `grain` is the smallest step of an error, as in `corrected_t_test`. With fewer than two trainings on a side, which
    say nothing about the noise of a training, the value is 1.
    """
    if min(len(first), len(second)) < 2:
        return 1.0
    from scipy.stats import ttest_ind_from_stats

    sides = [(float(np.mean(side)), max(float(np.std(side, ddof=1)), grain / 2), len(side)) for side in (first, second)]
    return float(ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue)


def measure_calibration(confidence: np.ndarray, correct: np.ndarray) -> Calibration:
    """Return the accuracy in ten equal bins of confidence, and the expected calibration error.

    That error is the mean distance between confidence and accuracy over the bins (Guo et al., 2017).
    """
    # A confidence of exactly 0.3 belongs to the bin that ends there, as in the paper's half-open intervals.
    bin_of = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(bin_of, minlength=BINS)
    confidences = np.bincount(bin_of, confidence, minlength=BINS)
    hits = np.bincount(bin_of, correct.astype(float), minlength=BINS)
    return Calibration(
        bins=[
            CalibrationBin(int(n), float(c / n), float(h / n)) if n else CalibrationBin(0)
            for n, c, h in zip(counts, confidences, hits, strict=True)
        ],
        ece=100.0 * float(np.abs(confidences - hits).sum() / max(len(confidence), 1)),
        confidence=100.0 * float(confidence.mean()),
        accuracy=100.0 * float(correct.mean()),
    )
