"""WRN-28-2, the wide residual network of Oliver et al. (2018)."""

from itertools import pairwise

from pydantic import Field
from torch import Tensor, nn

from afda.nets import BatchNorm, Classifier, FirstConv, GlobalAverage, Net, he_by_fan_out, scale_channels


class WRN282(Net):
    """Wide residual network of depth 28 and widening 2, used in the paper's supplement (128 features)."""

    width: float = Field(1.0, gt=0, le=100, description="factor on all channel counts; the paper's is 1")
    momentum: float = Field(0.001, gt=0, le=1, description="how fast BatchNorm's running statistics move")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        widths = [scale_channels(c, self.width) for c in (16, 32, 64, 128)]
        blocks: list[nn.Module] = [FirstConv(shape[0], widths[0], 3, padding=1, bias=False)]
        for group, (before, width) in enumerate(pairwise(widths)):
            for unit in range(4):
                blocks.append(
                    Unit(
                        before if unit == 0 else width,
                        width,
                        stride=2 if unit == 0 and group > 0 else 1,
                        momentum=self.momentum,
                        shared_activation=group == unit == 0,
                    )
                )
        blocks += [_norm(widths[-1], self.momentum), nn.LeakyReLU(0.1), GlobalAverage()]
        net = Classifier(nn.Sequential(*blocks), widths[-1], classes).apply(he_by_fan_out)
        nn.init.xavier_normal_(net.g.weight)
        nn.init.zeros_(net.g.bias)
        return net


class Unit(nn.Module):
    """Pre-activation residual unit; only the very first one also feeds its shortcut from the activation."""

    def __init__(self, before: int, after: int, *, stride: int, momentum: float, shared_activation: bool) -> None:
        super().__init__()
        self.enter = nn.Sequential(_norm(before, momentum), nn.LeakyReLU(0.1))
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            _norm(after, momentum),
            nn.LeakyReLU(0.1),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
        )
        self.shortcut = nn.Conv2d(before, after, 1, bias=False) if before != after else nn.Identity()
        self.stride = stride
        self.shared_activation = shared_activation

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        short = entered if self.shared_activation else x
        # Sampled before the convolution: a strided 1x1 convolution of fewer than 8 channels, channels last, overwrites
        # memory that is not its own in oneDNN (seen with torch 2.13).
        return self.body(entered) + self.shortcut(short[:, :, :: self.stride, :: self.stride])


def _norm(channels: int, momentum: float) -> BatchNorm:
    return BatchNorm(channels, eps=1e-3, momentum=momentum)
