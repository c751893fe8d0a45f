"""Shake-Shake 26 2x96d in the form of Tarvainen and Valpola (2017), after Gastaldi (2017)."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from afda.machine.group import ALONE, Group
from afda.nets import BatchNorm, Classifier, FalseGradient, FirstConv, GlobalAverage, Net, he_by_fan_out, scale_channels


class ShakeShake(Net):
    """Residual network of two randomly mixed branches, the paper's headline net on CIFAR-10 (384 features)."""

    width: float = Field(1.0, gt=0, le=100, description="factor on all channel counts; the paper's is 1")
    heads: Literal[1, 2] = Field(1, description="2: a second linear head for consistency, as Mean Teacher has it")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels = 16
        blocks: list[nn.Module] = [FirstConv(shape[0], channels, 3, padding=1, bias=False)]
        for stage, base in enumerate((96, 192, 384)):
            out = 2 * scale_channels(base // 2, self.width)  # even: a skip joins two halves
            for block in range(4):
                blocks.append(Block(channels, out, stride=2 if stage > 0 and block == 0 else 1))
                channels = out
        blocks.append(GlobalAverage())
        return Classifier(nn.Sequential(*blocks), channels, classes, heads=self.heads).apply(he_by_fan_out)


class Block(FalseGradient):
    """Two branches, mixed at random in training, and a skip."""

    group: Group = ALONE

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.first = _branch(before, after, stride)
        self.second = _branch(before, after, stride)
        self.skip: nn.Module
        if stride > 1:
            self.skip = ShiftedSkip(before, after)
        elif before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, bias=False), BatchNorm(after))
        else:
            self.skip = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + shake(self.first(x), self.second(x), self.training, self.exact, self.group)


class ShiftedSkip(nn.Module):
    """Halves the size: two samplings of the image, one pixel apart, each to half of the channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2 * before, after, 1, groups=2)
        self.norm = BatchNorm(after)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([x[:, :, 0::2, 0::2], x[:, :, 1::2, 1::2]], dim=1)
        return self.norm(self.conv(both.relu()))


def _branch(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
        BatchNorm(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        BatchNorm(after),
    )


class Shake(torch.autograd.Function):
    """a * first + (1 - a) * second forward; the gradient is shared out by other weights b, 1 - b."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(b)
        return a * first + (1 - a) * second

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (gradient,) = gradients
        (b,) = ctx.saved_tensors
        return b * gradient, (1 - b) * gradient, None, None


def shake(first: Tensor, second: Tensor, training: bool, exact: bool = False, group: Group = ALONE) -> Tensor:
    """Mix two branches per image: at random and anew for the backward pass in training, evenly otherwise.

    `exact` keeps the forward weights for the backward pass.
    """
    if not training:
        return (first + second) / 2
    # Drawn in float32, so that a pass repeated in another precision mixes alike.
    weights = torch.rand(2, group.count * len(first), 1, 1, 1, device=first.device)
    a, b = group.own(weights, dim=1).to(first.dtype)
    return Shake.apply(first, second, a, a if exact else b)
