from math import comb, sqrt

import numpy as np
import pytest

from afda.report.chance import BINS, interval, mcnemar, reliability


@pytest.mark.parametrize(("wrong", "images"), [(0, 40), (11, 500), (250, 500), (7, 7)])
def test_interval(wrong, images):
    z, p = 1.959963984540054, wrong / images
    centre = (p + z * z / (2 * images)) / (1 + z * z / images)
    half = z / (1 + z * z / images) * sqrt(p * (1 - p) / images + z * z / (4 * images * images))
    low, high = interval(wrong, images)
    assert (low, high) == (pytest.approx(100 * (centre - half), abs=1e-9), pytest.approx(100 * (centre + half)))
    assert 0 <= low <= 100 * p <= high <= 100 + 1e-9


def test_interval_of_nothing():
    assert interval(0, 0) is None


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 0), (3, 9), (54, 4), (6, 6)])
def test_mcnemar(first, second):
    n = first + second
    tail = sum(comb(n, k) for k in range(min(first, second) + 1)) / 2**n
    assert mcnemar(first, second) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(first, second) == mcnemar(second, first)


def test_reliability():
    random = np.random.default_rng(0)
    confidence = np.concatenate([random.uniform(0.1, 1, 300), [0.3, 1.0, 0.7]])
    right = random.uniform(size=len(confidence)) < confidence**2
    found = reliability(confidence, right)
    ece = 0.0
    for b in range(BINS):
        inside = [i for i, c in enumerate(confidence) if b / BINS < c <= (b + 1) / BINS]
        assert found["bins"][b]["images"] == len(inside)
        if inside:
            sure, correct = np.mean(confidence[inside]), np.mean(right[inside])
            assert found["bins"][b]["confidence"] == pytest.approx(sure)
            assert found["bins"][b]["accuracy"] == pytest.approx(correct)
            ece += len(inside) / len(confidence) * abs(sure - correct)
    assert found["ece"] == pytest.approx(100 * ece)


def test_reliability_of_an_honest_model():
    confidence = np.full(10, 0.7)
    assert reliability(confidence, np.arange(10) < 7)["ece"] == pytest.approx(0, abs=1e-9)
