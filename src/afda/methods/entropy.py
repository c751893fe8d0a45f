"""Entropy minimisation (Grandvalet and Bengio, 2005), and information maximisation (Krause et al., 2010)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from afda import losses
from afda.data.shares import ClassShares
from afda.methods import Loss, Method, Metric, Step


class Entropy(Method):
    """The entropy of the predictions for unlabelled images, as in vat+entropy; with a prior, also that of their mean.

    Entropy alone is least where all images are assigned to few classes; a prior for the mean prediction prevents that.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            name="entropy",
            label="entropy",
            description="Mean entropy of the predictions for unlabelled images, weighted.",
            direction="lower",
            term=True,
        ),
        Metric(
            name="balance",
            label="balance",
            description="Divergence of the mean prediction for unlabelled images from the prior, weighted.",
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
    prior: Literal["none", "uniform", "labelled", "estimated"] = Field(
        "none",
        description="class shares that the mean prediction is kept near: none, as in the paper; equal ones; those of "
        "the labels; half-way between equal ones and those estimated for the unlabelled images (shares_by), because "
        "an estimate that is its own prior reinforces itself. With many classes and few labels, do not combine "
        "estimated with shares_by em",
    )
    balance: float = Field(1.0, ge=0, description="weight of the mean prediction's divergence from the prior")

    @property
    def uses_shares(self) -> bool:
        return self.prior != "none"

    def loss(self, step: Step) -> Loss:
        logits = step.unlabelled.logits
        confidence = logits.detach().softmax(dim=1).amax(dim=1).mean()
        terms = {"entropy": self.weight * losses.entropy(logits)}
        if self.prior != "none" and step.shares is not None:
            prior = self.choose_prior(step.shares)
            mean_prediction = step.shares.mean.clamp_min(1e-8)
            terms["balance"] = self.balance * losses.information(logits, mean_prediction, prior)
        return Loss(terms, {"confidence": confidence})

    def choose_prior(self, shares: ClassShares) -> Tensor:
        """Return the prior, in which no share vanishes.

        A running estimate would be its own prior and reinforce itself, so it is taken half-way to equal shares; given
        shares are taken as they are.
        """
        if self.prior == "uniform":
            return torch.full_like(shares.labelled, 1 / len(shares.labelled))
        if self.prior == "estimated" and shares.estimator != "given":
            return (shares.estimate + 1 / len(shares.estimate)) / 2
        known = shares.labelled if self.prior == "labelled" else shares.estimate
        known = known.clamp_min(0.01 / len(known))
        return known / known.sum()
