"""The panel about class shares: those of the labels beside those that the model estimates for the unlabelled images."""

from dataclasses import dataclass

import numpy as np
import torch

from afda.data.shares import estimate_shares
from afda.report.embedding import FeatureSample
from afda.report.load_runs import LoadedRun

DOUBTFUL = 0.2
"""The total variation distance from which on alignment and the error estimate are doubtful."""


@dataclass(frozen=True)
class SharesPanel:
    """Shares of each class, of 1."""

    labelled: list[float]
    labels: list[int]
    """Labelled images of each class."""
    predicted: list[float]
    """The mean of the calibrated probabilities for unlabelled images."""
    estimated: list[float]
    """The same, corrected for shares that differ from those of the labels (EM)."""
    distance: float
    """The total variation distance between labelled and predicted shares."""
    doubtful: bool
    examined: int
    """Unlabelled images that were examined."""
    unlabelled: int


def compare_shares(sample: FeatureSample, run: LoadedRun) -> SharesPanel | None:
    """Return the class shares of the labels and of the sampled unlabelled images; None without the latter."""
    assert run.data is not None
    assert run.split is not None
    probabilities = sample.probabilities[~sample.labelled]
    if not len(probabilities):
        return None
    y = run.data.train.y[torch.from_numpy(run.split.labelled)].numpy()
    labels = np.bincount(y, minlength=len(run.data.classes))
    labelled, predicted = labels / labels.sum(), probabilities.mean(axis=0, dtype=np.float64)
    estimated = estimate_shares(torch.from_numpy(probabilities), torch.from_numpy(labelled))
    distance = float(np.abs(labelled - predicted).sum()) / 2
    return SharesPanel(
        labelled=labelled.round(6).tolist(),
        labels=labels.tolist(),
        predicted=predicted.round(6).tolist(),
        estimated=estimated.numpy().round(6).tolist(),
        distance=round(distance, 6),
        doubtful=distance >= DOUBTFUL,
        examined=len(probabilities),
        unlabelled=run.result.unlabelled,
    )
