"""From uint8 images (or raw vectors) to the network's input; part of the model, so that prediction cannot forget it."""

import torch
from torch import Tensor, nn

from afda.data.images import Preparation

ZCA_EPSILON = 1e-5
"""Added to the eigenvalues inside the root, as in the code of Laine and Aila (2017)."""


class Normaliser(nn.Module):
    """x -> (x - mean) * scale, then whitened by `matrix` if there is one."""

    mean: Tensor
    scale: Tensor
    matrix: Tensor | None

    def __init__(self, mean: Tensor, scale: Tensor, matrix: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("scale", scale.float())
        self.register_buffer("matrix", None if matrix is None else matrix.float())

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> "Normaliser":
        """The normaliser with this state, whether it whitens or not."""
        return cls(state["mean"], state["scale"], state.get("matrix"))

    def forward(self, x: Tensor) -> Tensor:
        x = (x.to(self.mean.dtype) - self.mean) * self.scale
        if self.matrix is not None:
            # Whitening magnifies the smallest differences: full precision, also where the net has less.
            with torch.autocast(x.device.type, enabled=False):
                x = (x.flatten(1) @ self.matrix).view_as(x)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x


def fitted(how: Preparation, x: Tensor) -> Normaliser:
    """The normaliser for these training images; it never sees others."""
    if x.dim() == 2:
        std, mean = torch.std_mean(x.float(), dim=0, correction=0)
        return Normaliser(mean, 1 / torch.where(std > 1e-8, std, 1.0))
    if how.normalise == "centre":
        return Normaliser(torch.tensor(127.5), torch.tensor(1 / 255))
    if how.normalise == "standard":
        mean, std = channel_moments(x)
        return Normaliser(mean[:, None, None], 1 / std.clamp_min(1e-8)[:, None, None])
    return zca(x)


def channel_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, from its histogram: exact, and in constant memory."""
    levels = torch.arange(256, dtype=torch.float64)
    counts = torch.stack(
        [
            sum(
                (torch.bincount(part[:, c].flatten().int(), minlength=256) for part in x.split(4096)),
                levels.new_zeros(256),
            )
            for c in range(x.shape[1])
        ]
    )
    shares = counts / counts.sum(dim=1, keepdim=True)
    mean = shares @ levels
    return mean, (shares @ levels.square() - mean.square()).clamp_min(0).sqrt()


def zca(x: Tensor) -> Normaliser:
    """Zero-phase whitening of images in [0, 1]: U diag(1 / sqrt(S + 1e-5)) U^T of the pixels' covariance."""
    parts, size = x.flatten(1).split(4096), x[0].numel()
    mean = torch.stack([part.sum(dim=0, dtype=torch.float64) for part in parts]).sum(dim=0) / (255 * len(x))
    products = torch.zeros(size, size, dtype=torch.float64)
    for part in parts:
        # Centred first: the difference of two large sums would drown the small eigenvalues.
        centred = part.to(torch.float32) / 255 - mean.float()
        products += (centred.T @ centred).double()
    values, vectors = torch.linalg.eigh(products / len(x))
    matrix = (vectors * (values.clamp_min(0) + ZCA_EPSILON).rsqrt()) @ vectors.T
    return Normaliser(255 * mean.view(x.shape[1:]), torch.tensor(1 / 255), matrix)
