"""What chance may have done to an error: its interval, the difference of two, and whether confidences are honest."""

from typing import Any

import numpy as np

BINS = 10


def interval(wrong: int, images: int) -> tuple[float, float] | None:
    """The 95 % interval (Wilson, 1927) of an error, in percent, when `wrong` of `images` were misclassified."""
    if not images:
        return None
    from scipy.stats import binomtest

    found = binomtest(wrong, images).proportion_ci(0.95, method="wilson")
    return 100.0 * float(found.low), 100.0 * float(found.high)


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact McNemar test of two classifiers on the same images, from how many only one of them gets right.

    It is the probability of a split at least as uneven if both were equally good.
    """
    if not only_first + only_second:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(only_first, only_first + only_second, 0.5).pvalue)


def reliability(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """How often the model is right among images that it is equally sure of, and the expected calibration error.

    The error is the mean distance between confidence and accuracy over ten equal bins, in percent (Guo et al., 2017).
    """
    # A confidence of exactly 0.3 belongs to the bin that ends there, as in the paper's half-open intervals.
    of_bin = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(of_bin, minlength=BINS)
    sure = np.bincount(of_bin, confidence, minlength=BINS)
    correct = np.bincount(of_bin, right.astype(float), minlength=BINS)
    bins = [
        {"images": int(n), "confidence": float(s / n), "accuracy": float(c / n)} if n else {"images": 0}
        for n, s, c in zip(counts, sure, correct, strict=True)
    ]
    return {
        "bins": bins,
        "ece": 100.0 * float(np.abs(sure - correct).sum() / max(len(confidence), 1)),
        "confidence": 100.0 * float(confidence.mean()),
        "accuracy": 100.0 * float(right.mean()),
    }
