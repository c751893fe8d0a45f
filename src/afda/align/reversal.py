"""Alignment by gradient reversal (Ganin and Lempitsky, 2015): one backward pass trains d and misleads f."""

from typing import Any

import torch
from torch import Tensor, nn

from afda import losses
from afda.align import WithDiscriminator
from afda.align.adversarial import build_discriminator
from afda.methods import Context, Loss, Step


class Reversal(WithDiscriminator):
    """Gradient reversal: d and f are trained at once, the gradient changing its sign between them."""

    def build(self, context: Context) -> "ReversalAlignment":
        return ReversalAlignment(context.features, self.count_hidden(context.features))

    def loss(self, step: Step) -> Loss:
        mu = self.mu(step.t)
        term = step.owned(step.clean.features, len(step.batch.y), mu, self.weigh_labelled(step))
        return Loss({"alignment": term}, {"discriminator_accuracy": step.owned.accuracy, "mu": mu})


class ReversalAlignment(nn.Module):
    """d's loss, reached through a reversed gradient: d descends it while f, mu times, ascends it."""

    def __init__(self, features: int, hidden: int = 1024) -> None:
        super().__init__()
        self.d = build_discriminator(features, hidden)
        self.accuracy: Tensor | None = None

    def forward(
        self, features: Tensor, labelled: losses.Labelled, mu: float = 1.0, weights: Tensor | None = None
    ) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            scores = self.d(Reverse.apply(features, mu)).squeeze(1)
        self.accuracy = losses.balanced_accuracy(scores.detach(), labelled)
        return -losses.adversarial(scores, labelled, weights)


class Reverse(torch.autograd.Function):
    """The identity whose gradient is multiplied by -mu."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mu: float) -> Tensor:
        ctx.mu = mu
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.mu * gradients[0], None
