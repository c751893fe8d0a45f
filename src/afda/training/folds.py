"""Folds of labelled images for cross-validation."""

import math

import numpy as np

FOLDS = 5
MOST_HELD_OUT = 2000
"""The most images that are held out in all folds together; with more labels, folds are a part of them."""


def make_folds(labelled: np.ndarray, y: np.ndarray, seed: int, groups: np.ndarray | None = None) -> list[np.ndarray]:
    """Return disjoint sets of labelled rows to hold out; the labels of a class are spread over as many as possible.

    Rows of one group are held out together. A class keeps at least one label, or group of labels, in every training, so
    the only one of a class is never held out.
    """
    random = np.random.default_rng([seed, 3])
    group_of = dict(zip(labelled.tolist(), (labelled if groups is None else groups[labelled]).tolist(), strict=True))
    members: dict[int, dict[int, list[int]]] = {}
    for row in random.permutation(labelled).tolist():
        members.setdefault(int(y[row]), {}).setdefault(group_of[row], []).append(row)
    folds: list[list[int]] = [[] for _ in range(FOLDS)]
    fold_of: dict[int, int] = {}
    for units in members.values():
        if len(units) > 1:
            for group, rows in units.items():
                # The smallest fold that has none of this class yet, so that folds are even and classes spread.
                taken = {fold_of[other] for other in units if other in fold_of}
                free = [k for k in range(FOLDS) if k not in taken] or list(range(FOLDS))
                fold = fold_of.setdefault(group, min(free, key=lambda k: len(folds[k])))
                folds[fold] += rows
    limit = math.ceil(MOST_HELD_OUT / FOLDS)
    return [np.sort(np.array(fold[:limit], dtype=np.int64)) for fold in folds if fold]
