"""The split into labelled, unlabelled and validation images: a pure function of the labels and the seed."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from afda.errors import UserError

MOST_VALIDATION = 1000
"""The paper's validation set is as large as the labelled set, but has at most this many images."""


@dataclass(frozen=True)
class Split:
    """Indices into the training images, each sorted; the three do not overlap."""

    labelled: np.ndarray
    unlabelled: np.ndarray
    validation: np.ndarray

    def to_dict(self, rows: np.ndarray | None = None) -> dict[str, object]:
        """Return the split for JSON; `rows` has the row of each training image in its source."""
        source = np.arange(len(self.labelled) + len(self.unlabelled) + len(self.validation)) if rows is None else rows
        return {
            "labelled": self.labelled.tolist(),
            "validation": self.validation.tolist(),
            "labelled_rows_of_source": source[self.labelled].tolist(),
            "validation_rows_of_source": source[self.validation].tolist(),
            "unlabelled": "all other training images",
            "counts": {k: len(getattr(self, k)) for k in ("labelled", "validation", "unlabelled")},
        }


def split(
    y: Tensor,
    classes: tuple[str, ...],
    *,
    labels: int | None = None,
    seed: int = 0,
    balanced: bool = False,
    validation: bool = False,
) -> Split:
    """Return a split that keeps `labels` of the known labels (all, by default) and hides the others.

    `balanced` draws equally many per class; otherwise the draw is uniform with every class present. The validation set
    is drawn after the labelled one, so that the labelled set is the same with and without it.
    """
    known = np.flatnonzero(y.numpy() >= 0)
    labels_of = y.numpy()
    count = len(known) if labels is None else labels
    if count > len(known):
        raise UserError(f"{count} labels were asked for, but only {len(known)} training images have one.")
    if count < len(classes):
        raise UserError(f"{count} labels cannot cover the {len(classes)} classes; ask for at least one per class.")
    random = np.random.default_rng([seed, 0])
    order = random.permutation(known)
    for k, name in enumerate(classes):
        if not (labels_of[order] == k).any():
            raise UserError(f"The class {name!r} has no labelled training image; label at least one or leave it out.")
    arrange = interleave_classes if balanced else include_every_class
    order = arrange(order, labels_of, count)
    labelled, rest = order[:count], order[count:]
    size = min(count, MOST_VALIDATION) if validation else 0
    if size > len(rest):
        raise UserError(
            f"Only {len(rest)} labels are left for a validation set of {size}; ask for fewer --labels, or leave out "
            "--validation."
        )
    chosen = arrange(rest, labels_of, size)[:size]
    unlabelled = np.setdiff1d(np.arange(len(y)), np.concatenate([labelled, chosen]))
    return Split(np.sort(labelled), unlabelled, np.sort(chosen))


def interleave_classes(order: np.ndarray, y: np.ndarray, _: int) -> np.ndarray:
    """Return the images in an order that cycles through the classes, so that every beginning of it is balanced."""
    turn = np.empty(len(order), dtype=np.int64)
    for k in np.unique(y[order]):
        of_class = np.flatnonzero(y[order] == k)
        turn[of_class] = np.arange(len(of_class))
    return order[np.argsort(turn, kind="stable")]


def include_every_class(order: np.ndarray, y: np.ndarray, count: int) -> np.ndarray:
    """Return the order with each class that the first `count` lack put in place of an image of a common class."""
    order = order.copy()
    for k in np.setdiff1d(y[order], y[order[:count]]) if count else ():
        counts = np.bincount(y[order[:count]])
        if counts.max() < 2:
            break
        out = np.flatnonzero(counts[y[order[:count]]] >= 2)[-1]
        into = count + np.flatnonzero(y[order[count:]] == k)[0]
        order[[out, into]] = order[[into, out]]
    return order
