"""h = g o f: a feature extractor and a linear classifier, and the layers whose hidden state must be in plain sight."""

import math
from enum import IntEnum
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from afda import processes
from afda.choices import Choice


class Output(NamedTuple):
    """What one pass gives: logits, the features before g, and the logits of a second head if there is one."""

    logits: Tensor
    features: Tensor
    second: Tensor | None = None
    first: Tensor | None = None
    """The logits of the first of two passes that were joined. A loss of these rows alone does not send a gradient of
    zeros back through the other pass."""

    def rows(self, part: slice) -> "Output":
        second = None if self.second is None else self.second[part]
        return Output(self.logits[part], self.features[part], second)

    def detach(self) -> "Output":
        second = None if self.second is None else self.second.detach()
        return Output(self.logits.detach(), self.features.detach(), second)


class Stream(IntEnum):
    """What is added to the key of a step to seed its noise, so that no two kinds of it are the same numbers."""

    LABELLED = 0
    """Dropout in passes of labelled images, or of both kinds at once."""
    UNLABELLED = 1
    DIRECTIONS = 2
    """The directions that VAT begins with."""
    VIEWS = 3
    """Augmentation."""


def seed_noise(key: int, device: torch.device) -> None:
    """Seed the noise drawn on a device. `torch.manual_seed` seeds every device there might be, which takes a thousand
    times as long on a machine without a GPU."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(key)
    else:
        torch.manual_seed(key)


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation of maps or vectors that moves its running statistics only in passes that say `track`."""

    track = False

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        if self.training and processes.count() > 1:
            return self.over_all_processes(x)
        if self.training and not self.track:
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        return super().forward(x)

    def over_all_processes(self, x: Tensor) -> Tensor:
        """The same by the statistics of the rows of all processes, each of which has as many."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        var, mean = torch.var_mean(wide, dim=[d for d in range(x.dim()) if d != 1], correction=0)
        means, variances = processes.everyones(torch.stack([mean, var])).unbind(1)
        mean, var = means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)
        if self.track and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            n = processes.count() * x.numel() // x.shape[1]
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(var.detach() * n / (n - 1), self.momentum)
        mean, scale, bias = (
            of_channel.view(-1, *(1,) * (x.dim() - 2))
            for of_channel in (mean, self.weight * (var + self.eps).rsqrt(), self.bias)
        )
        return torch.addcmul(bias, wide - mean, scale).to(x.dtype)


class FirstConv(nn.Conv2d):
    """A net's first convolution: in full precision under autocast, too.

    Its filters take differences of pixels that are nearly equal. Rounded to bfloat16 they no longer cancel, and the
    mean gradient of their weights came out 4 to 5 % short; that of no other layer did. It is a small part of a pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x)


class Dropout(nn.Module):
    """Element-wise dropout, with p rounded to 1/256.

    The mask depends on the random state, shape and layout alone, so a pass repeated from the same state drops the same
    elements in any precision. Eight elements share one random number, which is what makes it cheap on a CPU. In
    bfloat16 the scale of what is kept is rounded, by 0.4 % at most; that of p = 0.5 is exact.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.threshold = min(round(256 * p), 255)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return x
        of_all = processes.count() * x.numel()
        words = torch.empty(-(-of_all // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        noise = processes.mine(words.view(torch.uint8)[:of_all])
        kept = noise.as_strided(x.shape, x.stride()) >= self.threshold
        return x * kept.to(x.dtype).mul_(256 / (256 - self.threshold))


class FalseGradient(nn.Module):
    """A layer whose gradient in training is not that of its output, unless the pass is to be `exact`."""

    exact = False


class GlobalAverage(nn.Module):
    """The mean of each feature map, in full precision. Written so that its gradient has the layout of maps whose
    channels are last: in any other, the layer before it takes several times as long to go back."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(dim=1, dtype=torch.promote_types(x.dtype, torch.float32))


class Classifier(nn.Module):
    """h = g o f. A pass gives logits and features, and moves BatchNorm's running statistics only if told to `track`."""

    def __init__(self, f: nn.Module, features: int, classes: int, *, heads: int = 1, top_norm: bool = False) -> None:
        super().__init__()
        self.f = f
        self.g = nn.Linear(features, classes)
        self.g_norm = BatchNorm(classes, eps=1e-6, momentum=0.01) if top_norm else None
        self.g_second = nn.Linear(features, classes) if heads == 2 else None
        self.features = features

    def forward(self, x: Tensor, track: bool = False, exact: bool = False) -> Output:
        for module in self.modules():
            if isinstance(module, BatchNorm):
                module.track = track
            elif isinstance(module, FalseGradient):
                module.exact = exact
        features = self.f(x)
        if features.dtype == torch.bfloat16:
            features = features.float()
        # g costs nothing, and everything that is compared or differenced comes after it: full precision.
        with torch.autocast(x.device.type, enabled=False):
            logits = self.g(features)
            if self.g_norm is not None:
                logits = self.g_norm(logits)
            return Output(logits, features, self.g_second(features) if self.g_second is not None else None)

    def linear(self) -> tuple[Tensor, Tensor]:
        """W and b of g as it acts in evaluation, with a normalisation of the logits folded in."""
        weight, bias = self.g.weight.detach(), self.g.bias.detach()
        if self.g_norm is None:
            return weight, bias
        norm = self.g_norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
        return weight * scale[:, None], (bias - norm.running_mean) * scale + norm.bias.detach()


class Net(Choice):
    """A network by name. Its fields are its sizes; `build` makes the classifier with fresh weights."""

    shelf: ClassVar[str] = "nets"

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """A classifier of inputs of this shape, initialised from torch's global random state."""
        raise NotImplementedError


def he_truncated(module: nn.Module) -> None:
    """He initialisation by fan-in from a truncated normal, as in the code of Miyato et al. (2018)."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        std = math.sqrt(1.3 * 2 / module.weight[0].numel())
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def he_by_fan_out(module: nn.Module) -> None:
    """Convolutions from N(0, 2 / (k k out)), as residual networks are usually begun."""
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels)))
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def scaled(channels: int, width: float) -> int:
    """A channel count times a width factor, at least 1."""
    return max(1, round(channels * width))
