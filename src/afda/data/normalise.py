"""Fitting the normalisation of images or vectors to the training set."""

import torch
from torch import Tensor

from afda.data.images import Preparation
from afda.nets import Normaliser

ZCA_EPSILON = 1e-5
"""Added to the eigenvalues inside the root, as in the code of Laine and Aila (2017)."""


def fit_normaliser(preparation: Preparation, x: Tensor) -> Normaliser:
    """Return the normaliser for these training images."""
    if x.dim() == 2:
        std, mean = torch.std_mean(x.float(), dim=0, correction=0)
        return Normaliser(mean, 1 / torch.where(std > 1e-8, std, 1.0), clip=preparation.clip)
    if preparation.normalise == "centre":
        return Normaliser(torch.tensor(127.5), torch.tensor(1 / 255))
    if preparation.normalise == "standard":
        mean, std = compute_channel_moments(x)
        return Normaliser(mean[:, None, None], 1 / std.clamp_min(1e-8)[:, None, None])
    return fit_zca(x)


def compute_channel_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each channel, from its histogram: exact, and in constant memory."""
    levels = torch.arange(256, dtype=torch.float64)
    counts = torch.stack(
        [
            sum(
                (torch.bincount(part[:, c].flatten().int(), minlength=256) for part in torch.split(x, 4096)),
                levels.new_zeros(256),
            )
            for c in range(x.shape[1])
        ]
    )
    shares = counts / counts.sum(dim=1, keepdim=True)
    mean = shares @ levels
    return mean, (shares @ levels.square() - mean.square()).clamp_min(0).sqrt()


def fit_zca(x: Tensor) -> Normaliser:
    """Return the zero-phase whitening of images in [0, 1]: U diag(1 / sqrt(S + 1e-5)) U^T of the pixels' covariance."""
    parts, size = torch.split(x.flatten(1), 4096), x[0].numel()
    mean = torch.stack([part.sum(dim=0, dtype=torch.float64) for part in parts]).sum(dim=0) / (255 * len(x))
    products = torch.zeros(size, size, dtype=torch.float64)
    for part in parts:
        # Centred first: the difference of two large sums would drown the small eigenvalues.
        centred = part.to(torch.float32) / 255 - mean.float()
        products += (centred.T @ centred).double()
    values, vectors = torch.linalg.eigh(products / len(x))
    matrix = (vectors * (values.clamp_min(0) + ZCA_EPSILON).rsqrt()) @ vectors.T
    return Normaliser(255 * mean.view(x.shape[1:]), torch.tensor(1 / 255), matrix)
