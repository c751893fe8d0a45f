"""Alignment by gradient reversal (Ganin and Lempitsky, 2015): one backward pass trains d and misleads f."""

from typing import Any

import torch
from torch import Tensor, nn

from afda import losses
from afda.align import Alignment, WithDiscriminator
from afda.align.adversarial import discriminator


class Reversal(WithDiscriminator):
    """Gradient reversal: d and f are trained at once, the gradient changing its sign between them."""

    def build(self, features: int) -> "ReversalAlignment":
        return ReversalAlignment(features, hidden=self.hidden)


class ReversalAlignment(Alignment):
    """d's loss, reached through a reversed gradient: d descends it while f, mu times, ascends it."""

    def __init__(self, features: int, hidden: int = 1024) -> None:
        super().__init__()
        self.d = discriminator(features, hidden)

    def forward(self, features: Tensor, labelled: losses.Labelled, mu: float = 1.0) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            scores = self.d(Reverse.apply(features, mu)).squeeze(1)
        self.accuracy = losses.balanced_accuracy(scores.detach(), labelled)
        return -losses.adversarial(scores, labelled)

    def joint_parameters(self) -> list[nn.Parameter]:
        return list(self.d.parameters())


class Reverse(torch.autograd.Function):
    """The identity whose gradient is multiplied by -mu."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mu: float) -> Tensor:
        ctx.mu = mu
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.mu * gradients[0], None
