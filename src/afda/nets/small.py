"""A small convolutional net for images of about 8 to 28 pixels."""

from pydantic import Field
from torch import nn

from afda.nets import BatchNorm, Classifier, Dropout, FirstConv, GlobalAverage, Net, he_truncated, scale_channels


class Small(Net):
    """Five convolutions for tiny images such as the 8x8 digits (128 features)."""

    width: float = Field(1.0, gt=0, le=100, description="factor on the channel counts of the hidden layers")
    dropout: float = Field(0.25, ge=0, lt=1, description="dropout after each pair of convolutions")
    momentum: float = Field(0.01, gt=0, le=1, description="how fast BatchNorm's running statistics move")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels = shape[0]
        layers: list[nn.Module] = []

        def conv(out: int, kernel: int) -> None:
            nonlocal channels
            kind = nn.Conv2d if layers else FirstConv
            layers.append(kind(channels, out, kernel, padding=kernel // 2, bias=False))
            layers.append(BatchNorm(out, momentum=self.momentum))
            layers.append(nn.LeakyReLU(0.1, inplace=True))
            channels = out

        conv(scale_channels(32, self.width), 3)
        conv(scale_channels(32, self.width), 3)
        layers += [nn.MaxPool2d(2), Dropout(self.dropout)]
        conv(scale_channels(64, self.width), 3)
        conv(scale_channels(64, self.width), 3)
        layers.append(Dropout(self.dropout))
        conv(128, 1)
        layers.append(GlobalAverage())
        return Classifier(nn.Sequential(*layers), channels, classes).apply(he_truncated)
