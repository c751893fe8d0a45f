from math import comb, sqrt

import numpy as np
import pytest

from afda.runs.statistics import BINS, mcnemar_test, measure_calibration, wilson_interval


@pytest.mark.parametrize(("wrong", "images"), [(0, 40), (11, 500), (250, 500), (7, 7)])
def test_wilson_interval(wrong, images):
    z, p = 1.959963984540054, wrong / images
    centre = (p + z * z / (2 * images)) / (1 + z * z / images)
    half = z / (1 + z * z / images) * sqrt(p * (1 - p) / images + z * z / (4 * images * images))
    low, high = wilson_interval(wrong, images)
    assert (low, high) == (pytest.approx(100 * (centre - half), abs=1e-9), pytest.approx(100 * (centre + half)))
    assert 0 <= low <= 100 * p <= high <= 100 + 1e-9


def test_wilson_interval_without_images():
    assert wilson_interval(0, 0) is None


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 0), (3, 9), (54, 4), (6, 6)])
def test_mcnemar(first, second):
    n = first + second
    tail = sum(comb(n, k) for k in range(min(first, second) + 1)) / 2**n
    assert mcnemar_test(first, second) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar_test(first, second) == mcnemar_test(second, first)


def test_calibration():
    random = np.random.default_rng(0)
    confidence = np.concatenate([random.uniform(0.1, 1, 300), [0.3, 1.0, 0.7]])
    correct = random.uniform(size=len(confidence)) < confidence**2
    calibration = measure_calibration(confidence, correct)
    ece = 0.0
    for b, found in enumerate(calibration.bins):
        inside = [i for i, c in enumerate(confidence) if b / BINS < c <= (b + 1) / BINS]
        assert found.images == len(inside)
        if inside:
            mean, accuracy = np.mean(confidence[inside]), np.mean(correct[inside])
            assert found.confidence == pytest.approx(mean)
            assert found.accuracy == pytest.approx(accuracy)
            ece += len(inside) / len(confidence) * abs(mean - accuracy)
    assert len(calibration.bins) == BINS
    assert calibration.ece == pytest.approx(100 * ece)


def test_a_calibrated_model_has_no_calibration_error():
    assert measure_calibration(np.full(10, 0.7), np.arange(10) < 7).ece == pytest.approx(0, abs=1e-9)
