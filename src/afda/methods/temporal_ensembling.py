"""Temporal Ensembling (Laine and Aila, 2017): agree with an average of one's own past predictions for an image."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from afda import schedules
from afda.methods import Context, Loss, Method, Metric, Step


class TemporalEnsembling(Method):
    """Squared difference to a moving average of earlier predictions for the same unlabelled image; no second pass."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="remembered",
            label="remembered",
            description="Share of unlabelled images with an earlier prediction to agree with; 0 in the first epoch.",
            unit="share",
        ),
    )

    weight: float = Field(30.0, ge=0, description="weight after its ramp; the authors' is 30")
    ramp: float = Field(80 / 300, ge=0, le=1, description="share of the training in which the weight ramps up")
    momentum: float = Field(0.6, ge=0, lt=1, description="how much of the average an image's new prediction leaves")

    def build(self, context: Context) -> "Predictions":
        return Predictions(context.images, context.classes)

    def loss(self, step: Step) -> Loss:
        memory: Predictions = step.owned
        rows, probabilities = step.batch.j.to(memory.sums.device), step.unlabelled.logits.softmax(dim=1)
        visits = memory.visits[rows]
        # An average that began at zero is too small by 1 - momentum^visits; images never seen before do not count.
        target = memory.sums[rows] / (1 - self.momentum ** visits.clamp_min(1))[:, None]
        seen = (visits > 0).to(probabilities.dtype)
        squares = seen * (probabilities - target).square().mean(dim=1)
        with torch.no_grad():
            # An image may come up twice in a batch: its predictions are averaged, and count as one visit.
            same = (rows[:, None] == rows).to(probabilities.dtype)
            mean = same @ probabilities.detach() / same.sum(dim=1, keepdim=True)
            memory.sums[rows] = self.momentum * memory.sums[rows] + (1 - self.momentum) * mean
            memory.visits[rows] = visits + 1
        weight = self.weight * schedules.ramp_up(step.t, self.ramp)
        return Loss({"consistency": weight * squares.mean()}, {"remembered": seen.mean()})


class Predictions(nn.Module):
    """Discounted sums of the predictions for each training image, and how often each was seen."""

    sums: Tensor
    visits: Tensor

    def __init__(self, images: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(images, classes))
        self.register_buffer("visits", torch.zeros(images, dtype=torch.int64))
