"""Mean Teacher (Tarvainen and Valpola, 2017): agree with an average of oneself under another view."""

from typing import Literal

import torch
from pydantic import Field

from afda import losses, ramps
from afda.classifier import Output
from afda.methods import Batch, Method, Nets, Terms


class MeanTeacher(Method):
    """Squared difference to the predictions of a teacher, the moving average of the student's weights."""

    weight: float = Field(100.0, ge=0, description="eta after its ramp; the paper's grid is 1, 5, 10, 50, 100")
    ramp: float = Field(40 / 150, ge=0, le=1, description="share of the training in which eta ramps up")
    decay: float = Field(0.999, ge=0, lt=1, description="alpha of the moving average; smaller in the first updates")
    on: Literal["unlabelled", "all"] = Field("unlabelled", description="which images are to be consistent")
    logit_distance: float = Field(
        0.01, ge=0, description="with a two-headed net: weight of the heads' squared distance"
    )

    def terms(self, nets: Nets, batch: Batch, clean: Output, t: float) -> Terms:
        x, u = batch.view()
        student = clean if self.on == "all" else clean.rows(slice(len(batch.y), None))
        with torch.no_grad():
            passes = nets.passes if self.on == "all" else nets.of_unlabelled
            target = passes(x, u, net=nets.teacher).logits
        consistent = student.logits if student.second is None else student.second
        weight = self.weight * ramps.ramp_up(t, self.ramp)
        terms = {"consistency": weight * losses.squared_error(target, consistent)}
        if clean.second is not None:
            terms["logit_distance"] = self.logit_distance * (clean.logits - clean.second).square().mean()
        return terms

    def teacher_decay(self, step: int) -> float | None:
        return min(1 - 1 / (step + 2), self.decay)
