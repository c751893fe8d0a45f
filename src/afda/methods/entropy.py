"""Entropy minimisation (Grandvalet and Bengio, 2005): predictions for unlabelled images should be confident."""

from typing import ClassVar

from pydantic import Field

from afda import losses
from afda.methods import Loss, Method, Metric, Step


class Entropy(Method):
    """The entropy of the predictions for unlabelled images; combine it with others, as in vat+entropy."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="entropy",
            label="entropy",
            description="Mean entropy of the predictions for unlabelled images, weighted.",
            direction="lower",
            term=True,
        ),
        Metric(
            name="confidence",
            label="confidence",
            description="Mean probability of the predicted class, over unlabelled images.",
            unit="share",
        ),
    )

    weight: float = Field(1.0, ge=0, description="weight of the entropy term")

    def loss(self, step: Step) -> Loss:
        logits = step.unlabelled.logits
        confidence = logits.detach().softmax(dim=1).amax(dim=1).mean()
        return Loss({"entropy": self.weight * losses.entropy(logits)}, {"confidence": confidence})
