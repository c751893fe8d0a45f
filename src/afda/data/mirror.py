"""Whether images may be flipped: whether they can be told from their mirror images."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SAMPLE, FOLDS = 1000, 5
SIDE, CELLS, ANGLES = 32, 4, 8
"""Images are compared at this many pixels, by histograms of edge directions in this many cells along each axis."""
RIDGE = 0.1
LARGEST_ACCURACY = 0.6
"""Up to which images count as alike; chance is 0.5. CIFAR-10 has 0.49, SVHN 0.74 and the 8x8 digits 0.88."""


def is_like_its_mirror_image(x: Tensor) -> bool:
    """Return True if images (n, c, h, w) hardly differ from their mirror images, as photos do; digits and text do.

    No labels are used. A wrong flip costs more than a missing one, so doubt and few images count as a difference.
    """
    return len(x) >= 10 * FOLDS and measure_mirror_accuracy(x) <= LARGEST_ACCURACY


def measure_mirror_accuracy(x: Tensor) -> float:
    """Return how often a linear model, cross-validated, tells an image from its mirror image."""
    x = x[torch.linspace(0, len(x) - 1, min(SAMPLE, len(x))).long()]
    difference = (describe_edges(x) - describe_edges(x.flip(3))).double()
    difference = difference / (difference.std(dim=0) + 1e-9)
    fold = torch.arange(len(x)) % FOLDS
    right = 0
    for k in range(FOLDS):
        known, new = difference[fold != k], difference[fold == k]
        # Least squares with the target 1; that of a mirror image, whose difference has the other sign, is -1.
        ridge = RIDGE * len(known) * torch.eye(known.shape[1], dtype=known.dtype)
        weight = torch.linalg.solve(known.T @ known + ridge, known.sum(dim=0))
        right += int((new @ weight > 0).sum())
    return right / len(x)


def describe_edges(x: Tensor) -> Tensor:
    """Return histograms of the directions of edges (n, cells * cells * angles), whichever side of them is darker."""
    grey = F.adaptive_avg_pool2d(x[:, :3].float().mean(dim=1, keepdim=True), (SIDE, SIDE))[:, 0]
    across = grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]
    down = grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]
    strength = torch.hypot(across, down)
    position = torch.atan2(down, across) % math.pi * (ANGLES / math.pi)
    below = position.floor()
    maps = torch.zeros(len(x), ANGLES, *strength.shape[1:])
    for angle, share in ((below, 1 - (position - below)), (below + 1, position - below)):
        maps.scatter_add_(1, (angle.long() % ANGLES)[:, None], (strength * share)[:, None])
    cells = F.adaptive_avg_pool2d(maps, (CELLS, CELLS)).flatten(1)
    return cells / (cells.norm(dim=1, keepdim=True) + 1e-6)
