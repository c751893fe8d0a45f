"""Folds of labelled images for cross-validation."""

import numpy as np

FOLDS = 5
MOST_HELD_OUT = 2000
"""The most images that are held out in all folds together; of more labels, folds have equally many of each class."""


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
    kept = {group for units in members.values() if len(units) == 1 for group in units}
    if len(labelled) > MOST_HELD_OUT:
        kept |= {group for units in members.values() for group in exceed(units, MOST_HELD_OUT // len(members))}
    folds: list[list[int]] = [[] for _ in range(FOLDS)]
    fold_of: dict[int, int] = {}
    for units in members.values():
        for group, rows in units.items():
            if group in kept:
                continue
            # The smallest fold that has none of this class yet, so that folds are even and classes spread.
            taken = {fold_of[other] for other in units if other in fold_of}
            free = [k for k in range(FOLDS) if k not in taken] or list(range(FOLDS))
            fold = fold_of.setdefault(group, min(free, key=lambda k: len(folds[k])))
            folds[fold] += rows
    trained = [leave_every_class(fold, labelled, y, group_of) for fold in folds]
    return [np.sort(np.array(fold, dtype=np.int64)) for fold in trained if fold]


def exceed(units: dict[int, list[int]], most: int) -> list[int]:
    """Return the groups of a class that follow after this many rows; the first two groups stay."""
    ends = np.cumsum([len(rows) for rows in units.values()])
    return [group for i, (group, end) in enumerate(zip(units, ends, strict=True)) if i >= 2 and end > most]


def leave_every_class(fold: list[int], labelled: np.ndarray, y: np.ndarray, group_of: dict[int, int]) -> list[int]:
    """Return the fold without the groups of any class of which it has all labels; groups may have several classes."""
    lost = set(y[labelled].tolist()) - set(y[np.setdiff1d(labelled, fold)].tolist())
    dropped = {group_of[row] for row in fold if int(y[row]) in lost}
    return [row for row in fold if group_of[row] not in dropped]
