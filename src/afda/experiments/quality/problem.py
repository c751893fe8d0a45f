"""A problem: labelled and unlabelled samples to train on, and a test set that contains none of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from afda.data.images import UNLABELLED


@dataclass(frozen=True)
class Problem:
    """One data set at one number of labels and one seed."""

    x: np.ndarray
    """Training samples, labelled and unlabelled in random order: vectors (n, d) or images (n, h, w[, channels])."""
    y: np.ndarray
    """Their labels; -1 where there is none. They may be wrong, where the set says so."""
    truth: np.ndarray
    """The classes of the training samples, which no method sees."""
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def labelled(self) -> np.ndarray:
        """True for the samples that have a label."""
        return self.y != UNLABELLED

    def flatten(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the training and the test samples as vectors of float64."""
        x, x_test = (part.reshape(len(part), -1).astype(np.float64) for part in (self.x, self.x_test))
        return x, x_test


def split_off(y: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a training set and of a test set that has this share of every class."""
    test = [permute_class(y, k, rng)[: round(share * np.count_nonzero(y == k))] for k in np.unique(y)]
    rows = np.concatenate(test)
    return np.setdiff1d(np.arange(len(y)), rows), rows


def permute_class(y: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of a class in random order."""
    return rng.permutation(np.flatnonzero(y == k))


def choose_labels(truth: np.ndarray, counts: Mapping[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return the labels if only `counts[k]` samples of each class k keep theirs; fewer labels are a part of more."""
    y = np.full(len(truth), UNLABELLED)
    for k, count in counts.items():
        y[permute_class(truth, k, rng)[:count]] = k
    return y


def make_problem(
    x: np.ndarray,
    truth: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    rng: np.random.Generator,
) -> Problem:
    """Return the problem with its training samples in random order."""
    order = rng.permutation(len(x))
    return Problem(x[order], y[order], truth[order], x_test, y_test)
