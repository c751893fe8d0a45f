"""What a finished training says about its unlabelled images: those unlike the labelled ones, and class shares."""

import torch
from torch import Tensor

from afda.data.images import DataSet
from afda.data.split import Split
from afda.machine.runtime import Runtime
from afda.runs.model import Model, compute_outputs
from afda.runs.schemas import Result

UNLIKE = 0.5
"""Unlabelled images with a smaller weight are listed."""
SHIFTED = 0.2
"""The distance between class shares from which on alignment and error estimates are doubtful."""


def list_unlike(
    model: Model, data: DataSet, split: Split, weights: Tensor, runtime: Runtime
) -> tuple[tuple[str, ...], list[tuple[str, str, str]]]:
    """Return columns and rows of a table of the unlabelled images that are unlike the labelled ones.

    The smallest weights come first and, of equal ones, the images that the model is least confident about.
    """
    images = data.train
    columns = ("row" if images.paths is None else "path", "weight", "confidence")
    unlike = torch.nonzero(weights < UNLIKE).flatten()
    if not len(unlike):
        return columns, []
    rows = torch.from_numpy(split.unlabelled)[unlike]
    confidence = model.probabilities(compute_outputs(model, images.x, runtime, rows=rows).logits).amax(dim=1)
    names = images.source_rows[rows.numpy()].tolist() if images.paths is None else [images.paths[i] for i in rows]
    values = sorted(zip(weights[unlike].tolist(), confidence.tolist(), names, strict=True), key=lambda one: one[:2])
    return columns, [(str(name), f"{weight:.3f}", f"{sure:.3f}") for weight, sure, name in values]


def describe_shift(result: Result) -> str | None:
    """Return a sentence about class shares that differ between labels and unlabelled images, if they do."""
    if result.share_shift is None or result.share_shift < SHIFTED:
        return None
    return (
        f"the classes seem to have other shares among the unlabelled images than among the labels "
        f"({100 * result.share_shift:.0f} % of the images would have to change class), so alignment and errors that "
        "are estimated from the labels are doubtful. Label some images that are drawn at random."
    )
