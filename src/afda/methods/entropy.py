"""Entropy minimisation (Grandvalet and Bengio, 2005): predictions on unlabelled images should be sure."""

from pydantic import Field

from afda import losses
from afda.classifier import Output
from afda.methods import Batch, Method, Nets, Terms


class Entropy(Method):
    """The entropy of the predictions on unlabelled images; combine it with others, as in vat+entropy."""

    weight: float = Field(1.0, ge=0, description="weight of the entropy term")

    def terms(self, nets: Nets, batch: Batch, clean: Output, t: float) -> Terms:
        return {"entropy": self.weight * losses.entropy(clean.logits[len(batch.y) :])}
