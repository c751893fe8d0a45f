"""Projection memory: the features of an image, projected by a small network, should stay near those of earlier epochs.

An example of a method in a package of its own. It owns a network and a memory with one row per image, and reports a
metric. afda finds it by the entry point in pyproject.toml; nothing in afda names it.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from afda.methods import Context, Loss, Method, Metric, Step


class ProjectionMemory(Method):
    """Cosine distance between projected features and a memory of the same unlabelled image's earlier projections."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="projection",
            label="projection",
            description="Cosine distance to the remembered projections, weighted.",
            direction="lower",
            term=True,
        ),
        Metric(
            name="agreement",
            label="agreement",
            description="Mean cosine of projections with the remembered ones of the same images.",
            unit="share",
            direction="higher",
        ),
    )

    size: int = Field(32, gt=0, description="length of a projection")
    weight: float = Field(1.0, ge=0, description="weight of the distance to the memory")
    momentum: float = Field(0.5, ge=0, lt=1, description="share of the memory that a new projection leaves")

    def build(self, context: Context) -> "Projections":
        return Projections(context.features, self.size, context.images)

    def loss(self, step: Step) -> Loss:
        owned: Projections = step.owned
        rows = step.batch.j.to(owned.memory.device)
        projected = F.normalize(owned.head(step.unlabelled.features), dim=1)
        remembered = owned.memory[rows]
        known = remembered.any(dim=1)
        cosine = (projected * remembered).sum(dim=1)
        distance = torch.where(known, 1 - cosine, 0.0).mean()
        with torch.no_grad():
            mixed = self.momentum * remembered + (1 - self.momentum) * projected.detach()
            owned.memory[rows] = F.normalize(mixed, dim=1)
            agreement = torch.where(known, cosine, 0.0).sum() / known.sum().clamp_min(1)
        return Loss({"projection": self.weight * distance}, {"agreement": agreement})


class Projections(nn.Module):
    """A head that projects features, and the last projection of every training image."""

    memory: Tensor

    def __init__(self, features: int, size: int, images: int) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, size))
        self.register_buffer("memory", torch.zeros(images, size))
