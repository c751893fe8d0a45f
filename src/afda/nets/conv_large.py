"""ConvLarge, the 9-convolution network of Miyato et al. (2018)."""

from pydantic import Field
from torch import nn

from afda.nets import BatchNorm, Classifier, Dropout, FirstConv, GlobalAverage, Net, he_truncated, scale_channels


class ConvLarge(Net):
    """Nine convolutions with average pooling, the paper's network for SVHN and CIFAR-10 (128 features)."""

    width: float = Field(1.0, gt=0, le=100, description="factor on all channel counts; the paper's is 1")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout after each pooling")
    momentum: float = Field(0.01, gt=0, le=1, description="how fast BatchNorm's running statistics move")
    top_norm: bool = Field(False, description="batch normalisation of the logits, as vat_tf has it on SVHN")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels = shape[0]
        layers: list[nn.Module] = []

        def conv(out: int, kernel: int, padding: int = 0) -> None:
            nonlocal channels
            out = scale_channels(out, self.width)
            kind = nn.Conv2d if layers else FirstConv
            layers.append(kind(channels, out, kernel, padding=padding, bias=False))
            layers.append(BatchNorm(out, eps=1e-6, momentum=self.momentum))
            layers.append(nn.LeakyReLU(0.1, inplace=True))
            channels = out

        for out in (128, 256):
            for _ in range(3):
                conv(out, 3, padding=1)
            layers += [nn.MaxPool2d(2), Dropout(self.dropout)]
        # Unpadded as published; images too small for that keep their size.
        conv(512, 3, padding=0 if min(shape[1:]) >= 12 else 1)
        conv(256, 1)
        conv(128, 1)
        layers.append(GlobalAverage())
        net = Classifier(nn.Sequential(*layers), channels, classes, top_norm=self.top_norm)
        return net.apply(he_truncated)
