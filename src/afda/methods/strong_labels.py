"""Strong views of the labelled images: few labels last longer when the images look different every time."""

from typing import ClassVar

from pydantic import Field

from afda import losses, schedules
from afda.methods import Loss, Method, Metric, Step


class StrongLabels(Method):
    """Cross-entropy of strong views of the labelled images as well; a weight average is evaluated."""

    uses_unlabelled: ClassVar[bool] = False
    separate_backward: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="strong_supervised",
            label="strong views",
            description="Cross-entropy of strong views of labelled images, weighted.",
            direction="lower",
            term=True,
        ),
    )

    weight: float = Field(1.0, ge=0, description="weight of the strong views' cross-entropy")
    decay: float = Field(0.999, ge=0, lt=1, description="of the evaluated weight average; 0 evaluates the last weights")
    window: float = Field(
        0.1, gt=0, le=1, description="share of the updates so far that the average covers, until decay limits it"
    )

    def loss(self, step: Step) -> Loss:
        logits = step.nets.run(step.batch.strong().x, None).logits
        return Loss({"strong_supervised": self.weight * losses.cross_entropy(logits, step.batch.y)})

    def teacher_decay(self, step: int) -> float | None:
        return schedules.grow_decay(step, self.decay, self.window) if self.decay else None
