"""Class shares: those of the labelled images, and an estimate of those of the unlabelled ones as training goes on."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Estimator = Literal["mean", "em", "bbse", "given"]
"""How the shares of the unlabelled images are estimated from predictions, if they are not given."""
MOST_WEIGHT = 10.0
"""A labelled image weighs at most this many times as much as without weights, and at least this many times less."""
SMALLEST_SHARE = 1e-4
"""Shares are kept above this part of a uniform share, so that none vanishes for good."""
MOST_ROUNDS = 200
"""Rounds of EM at most."""


class ClassShares(nn.Module):
    """Shares of the classes among labelled and unlabelled images; the latter begin as the former.

    `mean` is the running mean of the predictions. `em` corrects each prediction for the present estimate before it is
    averaged (Saerens et al., 2002). `bbse` solves for the shares that explain the mean prediction, given what the net
    predicts for labelled images of each class (Lipton et al., 2018). These are running estimates: a batch moves them by
    `1 - decay`. `given` shares stay as they are.
    """

    labelled: Tensor
    mean: Tensor
    estimate: Tensor
    confusion: Tensor

    def __init__(
        self, labelled: Tensor, estimator: Estimator = "mean", given: Tensor | None = None, decay: float = 0.98
    ) -> None:
        super().__init__()
        self.estimator, self.decay = estimator, decay
        classes = len(labelled)
        for name in ("labelled", "mean"):
            self.register_buffer(name, labelled.clone())
        self.register_buffer("estimate", labelled.clone() if given is None else given / given.sum())
        self.register_buffer("confusion", torch.eye(classes, dtype=labelled.dtype))

    @classmethod
    def of(
        cls,
        y: Tensor,
        classes: int,
        estimator: Estimator = "mean",
        given: Sequence[float] | None = None,
        decay: float = 0.98,
    ) -> "ClassShares":
        """Return the shares of labels y, with which the estimate begins unless it is given."""
        counts = y.bincount(minlength=classes).to(torch.get_default_dtype())
        return cls(counts / counts.sum(), estimator, None if given is None else counts.new_tensor(given), decay)

    @torch.no_grad()
    def update(self, logits: Tensor, y: Tensor) -> None:
        """Move the estimate by the logits of one batch: labelled rows, whose classes are y, then unlabelled ones."""
        of_labelled, predictions = logits.softmax(dim=1).to(self.mean.dtype).tensor_split([len(y)])
        new = 1 - self.decay
        self.mean.lerp_(predictions.mean(dim=0), new)
        if self.estimator == "given":
            return
        if self.estimator == "mean":
            self.estimate.copy_(self.mean)
        elif self.estimator == "em":
            corrected = predictions * (self.estimate / self.labelled.clamp_min(1e-12))
            self.estimate.lerp_((corrected / corrected.sum(dim=1, keepdim=True)).mean(dim=0), new)
        else:
            for k in y.unique():
                self.confusion[:, k].lerp_(of_labelled[y == k].mean(dim=0), new)
            self.estimate.copy_(solve_shares(self.confusion, self.mean))
        smallest = SMALLEST_SHARE / len(self.estimate)
        self.estimate.clamp_(min=smallest).div_(self.estimate.sum())

    def weigh(self, y: Tensor) -> Tensor:
        """Return the weight of each labelled row: its class's share among the unlabelled images by that of labels."""
        return weigh_classes(self.estimate, self.labelled)[y]


def weigh_classes(estimate: Tensor, labelled: Tensor) -> Tensor:
    """Return the share of each class among the unlabelled images by that among the labels, within limits."""
    return (estimate / labelled.clamp_min(1e-12)).clamp(1 / MOST_WEIGHT, MOST_WEIGHT)


def estimate_shares(predictions: Tensor, labelled: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the class shares of images from predictions of a net trained with other shares, by EM.

    Predictions are corrected for the present estimate, which is then their mean, until it no longer moves (Saerens et
    al., 2002). `weights` say how much each image counts.
    """
    predictions = predictions.double()
    start = labelled.double().clamp_min(SMALLEST_SHARE / len(labelled))
    rows = torch.ones(len(predictions), dtype=torch.float64) if weights is None else weights.double()
    estimate = start / start.sum()
    for _ in range(MOST_ROUNDS):
        corrected = predictions * (estimate / start)
        corrected = corrected / corrected.sum(dim=1, keepdim=True).clamp_min(1e-300)
        before, estimate = estimate, rows @ corrected / rows.sum()
        if float((estimate - before).abs().sum()) < 1e-6:
            break
    return estimate


def solve_shares(confusion: Tensor, mean: Tensor) -> Tensor:
    """Return nonnegative shares q, of sum 1, with `confusion @ q` near the mean prediction, by least squares.

    Columns of the matrix are the mean predictions for the images of each class.
    """
    ridge = 1e-3 * torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
    shares = torch.linalg.solve(confusion.T @ confusion + ridge, confusion.T @ mean + ridge @ mean).clamp_min(0)
    return shares / shares.sum().clamp_min(1e-12)
