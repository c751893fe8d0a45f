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
    """Return columns and rows of a table of the unlabelled images that are unlike the labelled ones, these first."""
    images = data.train
    columns = ("row" if images.paths is None else "path", "weight", "confidence")
    order = weights.argsort(stable=True)
    order = order[weights[order] < UNLIKE]
    if not len(order):
        return columns, []
    rows = torch.from_numpy(split.unlabelled)[order]
    confidence = model.probabilities(compute_outputs(model, images.x, runtime, rows=rows).logits).amax(dim=1)
    names = images.source_rows[rows.numpy()].tolist() if images.paths is None else [images.paths[i] for i in rows]
    values = zip(names, weights[order].tolist(), confidence.tolist(), strict=True)
    return columns, [(str(name), f"{weight:.3f}", f"{sure:.3f}") for name, weight, sure in values]


def describe_shift(result: Result) -> str | None:
    """Return a sentence about class shares that differ between labels and unlabelled images, if they do."""
    if result.share_shift is None or result.share_shift < SHIFTED:
        return None
    return (
        f"the classes seem to have other shares among the unlabelled images than among the labels "
        f"({100 * result.share_shift:.0f} % of the images would have to change class), so alignment and errors that "
        "are estimated from the labels are doubtful. Label some images that are drawn at random."
    )
