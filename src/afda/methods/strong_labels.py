"""Strong views of the labelled images: few labels last longer when the images look different every time."""

from typing import ClassVar

from pydantic import Field

from afda import losses
from afda.methods import Loss, Method, Metric, Step


class StrongLabels(Method):
    """Cross-entropy of strong views of the labelled images, beside that of the weak views; no unlabelled images."""

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

    def loss(self, step: Step) -> Loss:
        logits = step.nets.run(step.batch.strong().x, None).logits
        return Loss({"strong_supervised": self.weight * losses.cross_entropy(logits, step.batch.y)})
