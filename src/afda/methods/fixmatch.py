"""FixMatch (Sohn et al., 2020): confident predictions for weak views are the labels of strong views."""

from typing import ClassVar

import torch.nn.functional as F
from pydantic import Field

from afda import schedules
from afda.methods import Loss, Method, Metric, Step


class FixMatch(Method):
    """Cross-entropy of strong views against confident pseudo-labels of weak views; a weight average is evaluated."""

    separate_backward: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="mask_rate",
            label="pseudo-labelled",
            description="Share of unlabelled images whose prediction is confident enough to be a pseudo-label.",
            unit="share",
            direction="higher",
        ),
    )

    threshold: float = Field(0.95, ge=0, le=1, description="confidence from which a prediction is a pseudo-label")
    weight: float = Field(1.0, ge=0, description="weight of the strong views' cross-entropy; there is no ramp")
    decay: float = Field(0.999, ge=0, lt=1, description="of the evaluated weight average; smaller in the first updates")
    window: float = Field(
        1.0, gt=0, le=1, description="share of the updates so far that the average covers, until decay limits it"
    )

    def loss(self, step: Step) -> Loss:
        confidence, pseudo_label = step.unlabelled.logits.detach().softmax(dim=1).max(dim=1)
        mask = (confidence >= self.threshold).to(confidence.dtype)
        strong = step.nets.run_unlabelled(step.batch.strong()).logits
        # The mean over all images, not over the confident ones: few pseudo-labels weigh little.
        cross_entropy = (mask * F.cross_entropy(strong, pseudo_label, reduction="none")).mean()
        return Loss({"consistency": self.weight * cross_entropy}, {"mask_rate": mask.mean()})

    def teacher_decay(self, step: int) -> float | None:
        return schedules.grow_decay(step, self.decay, self.window)
