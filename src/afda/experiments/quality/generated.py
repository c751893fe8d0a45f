"""Generated problems: Gaussian classes, and the digits with labels or a pool that are not as they should be."""

from functools import cache

import numpy as np

from afda.data.images import UNLABELLED
from afda.experiments.quality.problem import Problem, choose_labels, make_problem, permute_class, split_off

DIGITS = range(10)
TEST_SHARE = 0.28
"""Of the 1,797 digits: about 500 test images."""
MOST_UNEVEN = 100
"""Labels that one class has at most: the digits have 180 images of a class."""
SEPARATION = 1.66
"""Distance of orthogonal centres from the origin, in standard deviations: the Bayes error of five classes is 30 %."""


@cache
def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's 1,797 digits as vectors of 64 grey levels from 0 to 16, and their classes."""
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    return x, y


def split_digits(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors and classes of the training digits, then those of the test digits."""
    x, y = load_digits()
    train, test = split_off(y, TEST_SHARE, rng)
    return x[train], y[train], x[test], y[test]


def make_many_classes(labels: int, rng: np.random.Generator) -> Problem:
    """100 classes of 64-d vectors, N(0, 1) around centres N(0, 1.2^2), each with 10 unlabelled and 10 test samples."""
    centres = rng.normal(0, 1.2, (100, 64))
    truth, y_test = np.repeat(np.arange(100), labels + 10), np.repeat(np.arange(100), 10)
    x, x_test = (centres[y] + rng.normal(size=(len(y), 64)) for y in (truth, y_test))
    return make_problem(x, truth, choose_labels(truth, dict.fromkeys(range(100), labels), rng), x_test, y_test, rng)


def make_uneven_labels(labels: int, rng: np.random.Generator) -> Problem:
    """Digits, one class with ten times the labels of the others (at most 100), and a balanced pool."""
    x, truth, x_test, y_test = split_digits(rng)
    counts = dict.fromkeys(DIGITS, labels)
    counts[int(rng.integers(10))] = min(10 * labels, MOST_UNEVEN)
    # The pool keeps as many images of every class.
    y = choose_labels(truth, counts, rng)
    size = min(np.count_nonzero((truth == k) & (y == UNLABELLED)) for k in DIGITS)
    pool = [permute_class(np.where(y == UNLABELLED, truth, UNLABELLED), k, rng)[:size] for k in DIGITS]
    kept = np.concatenate([np.flatnonzero(y != UNLABELLED), *pool])
    return make_problem(x[kept], truth[kept], y[kept], x_test, y_test, rng)


def make_skewed_pool(labels: int, rng: np.random.Generator) -> Problem:
    """Digits, balanced labels, and a pool with a tenth of the images of five classes; the test set is balanced."""
    x, truth, x_test, y_test = split_digits(rng)
    y = choose_labels(truth, dict.fromkeys(DIGITS, labels), rng)
    hidden = np.where(y == UNLABELLED, truth, UNLABELLED)
    removed = [permute_class(hidden, int(k), rng) for k in rng.permutation(10)[:5]]
    kept = np.setdiff1d(np.arange(len(y)), np.concatenate([rows[round(len(rows) / 10) :] for rows in removed]))
    return make_problem(x[kept], truth[kept], y[kept], x_test, y_test, rng)


def make_out_of_class(labels: int, rng: np.random.Generator) -> Problem:
    """Digits 0 to 6 are the classes; 30 % of the pool are 7, 8 and 9, which have no label and are not tested on."""
    x, truth, x_test, y_test = split_digits(rng)
    known = dict.fromkeys(range(7), labels)
    y = choose_labels(truth, known, rng)
    strange = rng.permutation(np.flatnonzero(truth >= 7))
    inside = np.flatnonzero(truth < 7)
    pool = len(inside) - 7 * labels
    kept = np.concatenate([inside, strange[: round(pool * 0.3 / 0.7)]])
    tested = y_test < 7
    return make_problem(x[kept], truth[kept], y[kept], x_test[tested], y_test[tested], rng)


def make_imbalance(labels: int, rng: np.random.Generator) -> Problem:
    """Ten Gaussian classes of 500 to 5 pool samples; labels are proportional but at least 1; so is the test set."""
    shares = 0.01 ** (np.arange(10) / 9)
    given = np.maximum(1, np.round(10 * labels * shares / shares.sum())).astype(int)
    sizes = np.round(500 * shares).astype(int)
    centres = rng.normal(0, 1.0, (10, 16))
    truth, y_test = np.repeat(np.arange(10), given + sizes), np.repeat(np.arange(10), sizes)
    x, x_test = (centres[y] + rng.normal(size=(len(y), 16)) for y in (truth, y_test))
    counts = {k: int(count) for k, count in enumerate(given)}
    return make_problem(x, truth, choose_labels(truth, counts, rng), x_test, y_test, rng)


def make_overlapping(labels: int, rng: np.random.Generator) -> Problem:
    """Five Gaussian classes in 32 dimensions, as embeddings of hard photos: no classifier errs less than 30 %."""
    centres = SEPARATION * np.linalg.qr(rng.normal(size=(32, 5)))[0].T
    truth, y_test = np.repeat(np.arange(5), labels + 200), np.repeat(np.arange(5), 400)
    x, x_test = (centres[y] + rng.normal(size=(len(y), 32)) for y in (truth, y_test))
    return make_problem(x, truth, choose_labels(truth, dict.fromkeys(range(5), labels), rng), x_test, y_test, rng)


def make_useless_features(labels: int, rng: np.random.Generator) -> Problem:
    """Digits with 64 features of noise beside their 64 pixels."""
    x, truth, x_test, y_test = split_digits(rng)
    x, x_test = (np.hstack([part, rng.normal(8, 5, part.shape)]) for part in (x, x_test))
    return make_problem(x, truth, choose_labels(truth, dict.fromkeys(DIGITS, labels), rng), x_test, y_test, rng)


def make_noisy_labels(labels: int, rng: np.random.Generator) -> Problem:
    """Digits with 20 % of the labels wrong, as evenly divided among the classes as possible."""
    x, truth, x_test, y_test = split_digits(rng)
    y = choose_labels(truth, dict.fromkeys(DIGITS, labels), rng)
    wrong = round(0.2 * 10 * labels)
    for place, k in enumerate(rng.permutation(10)):
        right = np.where(y == truth, y, UNLABELLED)
        changed = permute_class(right, int(k), rng)[: wrong // 10 + (place < wrong % 10)]
        y[changed] = (k + rng.integers(1, 10, len(changed))) % 10
    return make_problem(x, truth, y, x_test, y_test, rng)
