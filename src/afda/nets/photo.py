"""A net for photos of 32 to 64 pixels that is trained from scratch on a CPU: most of its work is at low resolution."""

from pydantic import Field
from torch import nn

from afda.nets import BatchNorm, Classifier, Dropout, FirstConv, GlobalAverage, Net, he_truncated, scale_channels


class Photo(Net):
    """Six convolutions, halving the image early and often, for photos on a CPU (128 features)."""

    width: float = Field(1.0, gt=0, le=100, description="factor on all channel counts")
    dropout: float = Field(0.25, ge=0, lt=1, description="dropout after each pooling")
    momentum: float = Field(0.01, gt=0, le=1, description="how fast BatchNorm's running statistics move")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels = shape[0]
        layers: list[nn.Module] = []

        def conv(out: int, kernel: int = 3) -> None:
            nonlocal channels
            out = scale_channels(out, self.width)
            kind = nn.Conv2d if layers else FirstConv
            layers.append(kind(channels, out, kernel, padding=kernel // 2, bias=False))
            layers.append(BatchNorm(out, momentum=self.momentum))
            layers.append(nn.LeakyReLU(0.1, inplace=True))
            channels = out

        conv(32)
        layers.append(nn.MaxPool2d(2))
        for out in (64, 128):
            conv(out)
            conv(out)
            layers += [nn.MaxPool2d(2, ceil_mode=True), Dropout(self.dropout)]
        conv(128)
        layers.append(GlobalAverage())
        return Classifier(nn.Sequential(*layers), channels, classes).apply(he_truncated)
