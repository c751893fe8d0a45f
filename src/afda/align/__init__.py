"""Ways of aligning the features of labelled and unlabelled images, one file each; a new file is a new alignment."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from afda import losses, ramps
from afda.choices import Choice


class Alignment(nn.Module):
    """Draws the features of labelled and unlabelled images together.

    Calling it gives the term that f minimises, weighted by `mu`; `step` first lets an opponent learn, if there is one.
    `labelled` says which rows of `features` are: a mask, or how many, if they are the first.
    """

    def forward(self, features: Tensor, labelled: losses.Labelled, mu: float = 1.0) -> Tensor:
        raise NotImplementedError

    def step(
        self,
        features: Tensor,
        labelled: losses.Labelled,
        *,
        learning_rate: float | None = None,
        beta1: float | None = None,
    ) -> None:
        """One update of the opponent on features that carry no gradient."""

    def joint_parameters(self) -> list[nn.Parameter]:
        """Parameters to be trained by the optimiser of f and g."""
        return []

    optimizer: torch.optim.Optimizer | None = None
    """The one with which `step` trains an opponent."""

    accuracy: Tensor | None = None
    """The opponent's balanced accuracy in the latest pass; 0.5 is chance."""


class Align(Choice):
    """An alignment by name, and how its weight mu grows."""

    shelf: ClassVar[str] = "align"
    own_optimizer: ClassVar[bool] = False
    """Whether its discriminator is trained by an Adam of its own."""

    weight: float = Field(1.0, ge=0, description="the weight that mu rises to")
    gamma: float = Field(10.0, gt=0, description="how fast mu rises: weight * tanh(gamma t / 2)")

    def mu(self, t: float) -> float:
        """mu at progress t in [0, 1]."""
        return self.weight * ramps.mu(t, self.gamma)

    def build(self, features: int) -> Alignment:
        raise NotImplementedError


class WithDiscriminator(Align):
    """An alignment against a discriminator d."""

    hidden: int = Field(1024, gt=0, le=20_000, description="units of each of d's two hidden layers")
    learning_rate: float | None = Field(None, gt=0, description="d's own learning rate; by default that of f and g")
