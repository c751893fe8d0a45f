from math import comb, sqrt

import numpy as np
import pytest
from scipy import stats

from afda.runs.statistics import (
    BINS,
    corrected_t_test,
    mcnemar_test,
    measure_calibration,
    welch_t_test,
    wilson_interval,
)


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


def test_welch_agrees_with_scipy_where_seeds_differ():
    first, second = [10.0, 12.0, 11.5], [14.0, 13.0]
    expected = stats.ttest_ind(first, second, equal_var=False).pvalue
    assert welch_t_test(first, second, 0.1) == pytest.approx(expected)
    assert welch_t_test(first, second[:1], 0.1) == 1.0


def test_corrected_t_test_by_its_formula():
    differences = np.array([0.1, 0.0, 0.2, 0.1, 0.0])
    t = differences.mean() / (differences.std(ddof=1) * sqrt(1 / 5 + 1 / 4))
    assert corrected_t_test(differences, 1 / 4, 0.1) == pytest.approx(2 * stats.t.sf(t, 4))
    assert corrected_t_test([0.0, 0.0], 1, 0.1) == corrected_t_test([0.3], 1, 0.1) == 1.0


def test_the_same_small_difference_everywhere_is_not_certain():
    """Two folds that both differ by one image, or two seeds whose errors agree by chance, have no variance."""
    assert corrected_t_test([0.1, 0.1], 1, 0.1) > 0.05
    assert welch_t_test([10.0, 10.0], [11.0, 11.0], 1.0) > 0.05
    assert corrected_t_test([1.0] * 5, 1 / 4, 0.1) < 0.001
    assert welch_t_test([10.0] * 3, [40.0] * 3, 1.0) < 0.001


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
