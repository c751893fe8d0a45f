"""Add feature alignment to a PyTorch training loop of your own.

The feature extractor f and the classifier g are ordinary modules. `AdversarialAlignment` owns the discriminator and its
optimiser: `step` updates the discriminator, and calling it returns the term that f minimises. Compare `--weight 0`.
"""

import argparse
import math

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from afda import AdversarialAlignment, mmd2

LABELS, LABELLED_BATCH, UNLABELLED_BATCH = 30, 16, 64


def load_images() -> tuple[Tensor, Tensor]:
    """Return scikit-learn's digits in random order."""
    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels))
    return torch.from_numpy(pixels).float()[order].reshape(-1, 1, 8, 8) / 16, torch.from_numpy(digits)[order]


def block(inputs: int, outputs: int) -> nn.Module:
    """Return a convolution with BatchNorm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--weight", type=float, default=1.0)
    asked = parser.parse_args()

    torch.manual_seed(0)
    images, labels = load_images()
    x, y, u = images[:LABELS], labels[:LABELS], images[LABELS:1297]
    test_x, test_y = images[1297:], labels[1297:]

    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    f = nn.Sequential(block(1, 32), block(32, 32), nn.MaxPool2d(2), nn.Dropout(0.25), block(32, 64), pooled)
    g = nn.Linear(64, 10)
    optimizer = torch.optim.Adam([*f.parameters(), *g.parameters()], lr=3e-3)
    align = AdversarialAlignment(features=64, hidden=256, learning_rate=3e-3)

    for step in range(asked.steps):
        labelled = torch.randint(len(x), (LABELLED_BATCH,))
        unlabelled = torch.randint(len(u), (UNLABELLED_BATCH,))
        z = torch.cat([f(x[labelled]), f(u[unlabelled])])
        align.step(z.detach(), LABELLED_BATCH)  # the first rows are the labelled images
        mu = asked.weight * math.tanh(5 * step / asked.steps)
        loss = cross_entropy(g(z[:LABELLED_BATCH]), y[labelled]) + mu * align(z, LABELLED_BATCH)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    f.eval()
    with torch.no_grad():
        error = (g(f(test_x)).argmax(dim=1) != test_y).float().mean()
        distance = mmd2(f(x), f(u))
    print(f"Test error {100 * error:.1f} %, MMD² of the features {1000 * float(distance):.1f}e-3")


if __name__ == "__main__":
    main()
