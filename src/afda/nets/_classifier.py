"""h = g o f: normalisation, feature extractor and classifier, layers with hidden state, and passes of a batch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from afda.machine.group import ALONE, Group


class Output(NamedTuple):
    """The result of one pass: logits, the features before g, and the logits of a second head if there is one."""

    logits: Tensor
    features: Tensor
    second: Tensor | None = None
    first: Tensor | None = None
    """The logits of the first of two passes that were joined. A loss of these rows alone does not send a gradient of
    zeros back through the other pass."""

    def rows(self, part: slice) -> "Output":
        """Return some of the rows."""
        second = None if self.second is None else self.second[part]
        return Output(self.logits[part], self.features[part], second)

    def detach(self) -> "Output":
        """Return the same values without their graph."""
        second = None if self.second is None else self.second.detach()
        return Output(self.logits.detach(), self.features.detach(), second)


class Stream(IntEnum):
    """What is added to the key of a step to seed its noise, so that no two purposes draw the same numbers."""

    LABELLED = 0
    """Dropout in passes of labelled images, or of both kinds at once."""
    UNLABELLED = 1
    DIRECTIONS = 2
    """The directions that VAT begins with."""
    VIEWS = 3
    """Augmentation: view n of a step uses VIEWS + n * len(Stream)."""


def seed_noise(key: int, device: torch.device) -> None:
    """Seed the noise drawn on a device.

    `torch.manual_seed` seeds every possible device, which takes a thousand times as long on a machine without a GPU.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(key)
    else:
        torch.manual_seed(key)


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation of maps or vectors that moves its running statistics only in passes with `track`."""

    track = False
    group: Group = ALONE

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.group.count > 1:
            return self.normalise_across_processes(x)
        if self.training and not self.track:
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        return super().forward(x)

    def normalise_across_processes(self, x: Tensor) -> Tensor:
        """Normalise by the statistics of the rows of all processes, each of which has equally many."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        var, mean = torch.var_mean(wide, dim=[d for d in range(x.dim()) if d != 1], correction=0)
        means, variances = self.group.gather_statistics(torch.stack([mean, var])).unbind(1)
        mean, var = means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)
        if self.track and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            n = self.group.count * x.numel() // x.shape[1]
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(var.detach() * n / (n - 1), self.momentum)
        scale = (var + self.eps).rsqrt()
        scale, bias = (self.weight * scale, self.bias) if self.affine else (scale, torch.zeros_like(mean))
        mean, scale, bias = (value.view(-1, *(1,) * (x.dim() - 2)) for value in (mean, scale, bias))
        return torch.addcmul(bias, wide - mean, scale).to(x.dtype)


class FirstConv(nn.Conv2d):
    """A net's first convolution, in full precision under autocast, too.

    Its filters take differences of pixels that are nearly equal. Rounded to bfloat16 they no longer cancel, and the
    mean gradient of their weights came out 4 to 5 % short; that of no other layer did. It is a small part of a pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x)


class Dropout(nn.Module):
    """Element-wise dropout, with p rounded to 1/256.

    The mask depends on the random state, shape and layout alone, so a pass repeated from the same state drops the same
    elements in any precision. Eight elements share one random number, which makes it cheap on a CPU. In bfloat16 the
    scale of the kept elements is rounded, by 0.4 % at most; that of p = 0.5 is exact.
    """

    group: Group = ALONE

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.threshold = min(round(256 * p), 255)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return x
        total = self.group.count * x.numel()
        words = torch.empty(-(-total // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        noise = words.view(torch.uint8)[:total]
        if self.group.count > 1:
            noise = self.group.own(noise)
        kept = noise.as_strided(x.shape, x.stride()) >= self.threshold
        return x * kept.to(x.dtype).mul_(256 / (256 - self.threshold))


class FalseGradient(nn.Module):
    """A layer whose gradient in training is not that of its output, unless the pass is `exact`."""

    exact = False


class GlobalAverage(nn.Module):
    """The mean of each feature map, in full precision.

    It is written so that its gradient has the layout of maps whose channels are last: in any other, the layer before it
    takes several times as long to go back.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(dim=1, dtype=torch.promote_types(x.dtype, torch.float32))


class Normaliser(nn.Module):
    """Map x to (x - mean) * scale, clip it to [-clip, clip] if asked to, and whiten it by `matrix` if there is one."""

    mean: Tensor
    scale: Tensor
    matrix: Tensor | None

    def __init__(self, mean: Tensor, scale: Tensor, matrix: Tensor | None = None, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", mean.float())
        self.register_buffer("scale", scale.float())
        self.register_buffer("matrix", None if matrix is None else matrix.float())

    @classmethod
    def from_state(cls, state: dict[str, Tensor], clip: float | None = None) -> "Normaliser":
        """Return the normaliser with this state, whether it whitens or not; `clip` is not part of the state."""
        return cls(state["mean"], state["scale"], state.get("matrix"), clip)

    def forward(self, x: Tensor) -> Tensor:
        x = (x.to(self.mean.dtype) - self.mean) * self.scale
        if self.clip is not None:
            x = x.clamp(-self.clip, self.clip)
        if self.matrix is not None:
            # Whitening magnifies the smallest differences: full precision, also where the net has less.
            with torch.autocast(x.device.type, enabled=False):
                x = (x.flatten(1) @ self.matrix).view_as(x)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x


class Classifier(nn.Module):
    """h = g o f. A pass returns logits and features, and moves BatchNorm's running statistics only with `track`.

    `f` is any module that maps a batch of inputs to feature vectors.
    """

    def __init__(self, f: nn.Module, features: int, classes: int, *, heads: int = 1, top_norm: bool = False) -> None:
        super().__init__()
        self.f = f
        self.g = nn.Linear(features, classes)
        self.g_norm = BatchNorm(classes, eps=1e-6, momentum=0.01) if top_norm else None
        self.g_second = nn.Linear(features, classes) if heads == 2 else None
        self.features = features
        self.frozen: tuple[str, ...] = ()
        self.rate_factors: dict[str, float] = {}

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

    def freeze(self, *parts: str) -> None:
        """Keep these submodules, such as `f.backbone`, as they are: no gradients, and always in evaluation mode."""
        self.frozen = (*self.frozen, *parts)
        for name in parts:
            self.get_submodule(name).requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> "Classifier":
        """Set the mode of all submodules but the frozen ones."""
        super().train(mode)
        for name in self.frozen:
            self.get_submodule(name).eval()
        return self

    def scale_rate(self, part: str, factor: float) -> None:
        """Train this submodule, such as `f.backbone`, with the learning rate times a factor."""
        self.get_submodule(part)
        self.rate_factors[part] = factor

    def iter_rate_groups(self) -> Iterator[tuple[float, list[tuple[str, nn.Parameter]]]]:
        """Yield the trained parameters by the factor of their learning rate; the most specific submodule counts."""
        groups: dict[float, list[tuple[str, nn.Parameter]]] = {1.0: []}
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                parts = [part for part in self.rate_factors if name.startswith(f"{part}.")]
                factor = self.rate_factors[max(parts, key=len)] if parts else 1.0
                groups.setdefault(factor, []).append((name, parameter))
        yield from ((factor, parameters) for factor, parameters in groups.items() if parameters)

    def fold_linear(self) -> tuple[Tensor, Tensor]:
        """Return W and b of g as it acts in evaluation, with a normalisation of the logits folded in."""
        weight, bias = self.g.weight.detach(), self.g.bias.detach()
        if self.g_norm is None:
            return weight, bias
        norm = self.g_norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
        return weight * scale[:, None], (bias - norm.running_mean) * scale + norm.bias.detach()


class View(Protocol):
    """One view of a batch's images, ready for the net."""

    @property
    def x(self) -> Tensor: ...

    @property
    def u(self) -> Tensor: ...


@dataclass(frozen=True)
class Networks:
    """The student h, its moving average (the teacher, if a method has one), and how batches pass through them.

    `separate`: labelled and unlabelled images are normalised by the batch statistics of their own kind, in passes of
    their own; otherwise by those of the whole batch. Either way an image passes once.
    """

    student: Classifier
    teacher: Classifier | None = None
    separate: bool = True
    group: Group = field(default=ALONE)

    def run(
        self,
        x: Tensor | None,
        u: Tensor | None,
        *,
        key: int | None = None,
        track_labelled: bool = False,
        track_unlabelled: bool = False,
        net: Classifier | None = None,
        exact: bool = False,
    ) -> Output:
        """Return the output for x and u, joined in this order, of all processes.

        A pass moves running statistics only where it says `track`. `key` seeds its dropout, so that a pass can be
        repeated under the same masks. `exact` asks layers with a false gradient (Shake-Shake) for the true one.
        """
        net = net or self.student
        if self.separate or x is None or u is None:
            outputs = []
            for part, track, stream in ((x, track_labelled, Stream.LABELLED), (u, track_unlabelled, Stream.UNLABELLED)):
                if part is not None:
                    if key is not None:
                        seed_noise(key + stream, part.device)
                    outputs.append(self.gather(net(part, track=track, exact=exact)))
            return join_outputs(outputs)
        if key is not None:
            seed_noise(key, x.device)
        both = net(torch.cat([x, u]), track=track_labelled or track_unlabelled, exact=exact)
        if self.group.count == 1:
            return both
        return join_outputs([self.gather(both.rows(kind)) for kind in (slice(len(x)), slice(len(x), None))])

    def run_unlabelled(self, view: View, **options: Any) -> Output:
        """Return the output for u, normalised as in the clean pass: by its own statistics, or by those of x and u."""
        if self.separate:
            return self.run(None, view.u, **options)
        x, u = view.x, view.u
        return self.run(x, u, **options).rows(slice(self.group.count * len(x), None))

    def gather(self, output: Output) -> Output:
        """Return the output for the images of all processes, from that for this process's images."""
        if self.group.count == 1:
            return output
        both = self.group.gather(torch.cat([output.logits, output.features], dim=1))
        # Separate from the others, so that a head that is not used has no gradient.
        second = None if output.second is None else self.group.gather(output.second)
        logits, features = both.tensor_split([output.logits.shape[1]], dim=1)
        return Output(logits, features, second)


def join_outputs(outputs: list[Output]) -> Output:
    """Return several outputs as one, in this order."""
    if len(outputs) == 1:
        return outputs[0]
    second = [o.second for o in outputs if o.second is not None]
    return Output(
        torch.cat([o.logits for o in outputs]),
        torch.cat([o.features for o in outputs]),
        torch.cat(second) if second else None,
        outputs[0].logits,
    )
