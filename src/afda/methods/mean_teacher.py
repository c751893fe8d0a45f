"""Mean Teacher (Tarvainen and Valpola, 2017): agree with a moving average of the weights under another view."""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from afda import losses, schedules
from afda.methods import Loss, Method, Metric, Step


class MeanTeacher(Method):
    """Squared difference to the predictions of a teacher, the moving average of the student's weights."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="logit_distance",
            label="logit distance",
            description="Squared distance of the logits of a two-headed net, weighted.",
            direction="lower",
            term=True,
        ),
    )

    weight: float = Field(100.0, ge=0, description="eta after its ramp; the paper's grid is 1, 5, 10, 50, 100")
    ramp: float = Field(40 / 150, ge=0, le=1, description="share of the training in which eta ramps up")
    decay: float = Field(0.999, ge=0, lt=1, description="alpha of the moving average; smaller in the first updates")
    on: Literal["unlabelled", "all"] = Field("unlabelled", description="which images are to be consistent")
    logit_distance: float = Field(
        0.01, ge=0, description="with a two-headed net: weight of the heads' squared distance"
    )

    def loss(self, step: Step) -> Loss:
        view, nets = step.batch.weak(), step.nets
        with torch.no_grad():
            if self.on == "all":
                target = nets.run(view.x, view.u, net=nets.teacher).logits
            else:
                target = nets.run_unlabelled(view, net=nets.teacher).logits
        student = step.clean if self.on == "all" else step.unlabelled
        consistent = student.logits if student.second is None else student.second
        weight = self.weight * schedules.ramp_up(step.t, self.ramp)
        terms = {"consistency": weight * losses.squared_error(target, consistent)}
        if step.clean.second is not None:
            terms["logit_distance"] = self.logit_distance * (step.clean.logits - step.clean.second).square().mean()
        return Loss(terms)

    def teacher_decay(self, step: int) -> float | None:
        return schedules.grow_decay(step, self.decay)
