"""Pi-model (Laine and Aila, 2017): two augmented, noisy passes of an image should agree."""

from typing import Literal

from pydantic import Field

from afda import losses, schedules
from afda.methods import Loss, Method, Step


class PiModel(Method):
    """Squared difference between the predictions for two random views of an image."""

    weight: float = Field(100.0, ge=0, description="eta after its ramp; the paper's grid is 1, 5, 10, 50, 100")
    ramp: float = Field(40 / 150, ge=0, le=1, description="share of the training in which eta ramps up")
    gradient: Literal["both", "first"] = Field("both", description="let the gradient flow through both views or one")

    def loss(self, step: Step) -> Loss:
        second = step.nets.run_unlabelled(step.batch.weak()).logits
        if self.gradient == "first":
            second = second.detach()
        weight = self.weight * schedules.ramp_up(step.t, self.ramp)
        return Loss({"consistency": weight * losses.squared_error(second, step.unlabelled.logits)})
