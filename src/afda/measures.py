"""Measures of a trained classifier: its errors, MMD^2 between its features, and the terms of Theorem 1."""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE_WIDTH = 0.3
CHUNK = 2048
"""Rows and columns of the kernel matrix held at a time: 16 MB in float32."""


def error_rate(predicted: Tensor, y: Tensor) -> float:
    """Return the share of wrong predictions, in percent."""
    return 100.0 * float((predicted != y).double().mean())


def confusion_matrix(predicted: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return the confusion matrix: images of each true class (row) that were assigned to each class (column)."""
    return torch.bincount(y * classes + predicted, minlength=classes * classes).view(classes, classes)


def class_errors(matrix: Tensor) -> list[float | None]:
    """Return the error of each class in percent, from a confusion matrix; None for a class without images."""
    right, total = matrix.diagonal().tolist(), matrix.sum(dim=1).tolist()
    return [100.0 * (1 - r / n) if n else None for r, n in zip(right, total, strict=True)]


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the number to divide logits by so that their softmax fits the labels best (Guo et al., 2017).

    A few images that all happen to be right would ask for certainty; so the logarithm of the temperature is held near
    zero, as if it had been drawn from a normal distribution of width `TEMPERATURE_WIDTH`.
    """

    def loss(log_t: float) -> float:
        misfit = float(F.cross_entropy(logits.double() / math.exp(log_t), y, reduction="sum"))
        return misfit + 0.5 * (log_t / TEMPERATURE_WIDTH) ** 2

    low, high = math.log(0.05), math.log(20.0)
    golden = (math.sqrt(5) - 1) / 2
    while high - low > 1e-4:
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return math.exp((low + high) / 2)


def median_bandwidth(
    p: Tensor,
    q: Tensor,
    *,
    of: Literal["squared", "distance"] = "squared",
    most: int = 5000,
    seed: int = 0,
) -> Tensor:
    """Return gamma of the kernel: the median squared distance of different pooled features (Gretton et al., 2012).

    Pooled features beyond `most` are subsampled by `seed`. `of="distance"` is the median of the plain distances, the
    paper's literal words; it makes MMD^2 depend on the scale of the features.
    """
    pooled = torch.cat([p, q]).detach()
    if len(pooled) > most:
        chosen = torch.randperm(len(pooled), generator=torch.Generator().manual_seed(seed))[:most]
        pooled = pooled[chosen.to(pooled.device)]
    distances = torch.pdist(pooled)
    # Written so that a GPU is not waited for, as it would be to count them.
    median = distances.masked_fill(distances <= 0, math.nan).nanmedian()
    median = torch.where(median.isnan(), 1.0, median)
    return median.square() if of == "squared" else median


def kernel_sum(p: Tensor, q: Tensor | None, bandwidth: Tensor) -> Tensor:
    """Return the sum of exp(-||p_i - q_j||^2 / bandwidth) over all pairs, in chunks of the kernel matrix.

    Without q over the pairs i != j of p itself: chunks off the diagonal are computed once and counted twice.
    """
    within = q is None
    p, q = (of_set / bandwidth.sqrt() for of_set in (p, p if q is None else q))
    p_norms, q_norms = p.square().sum(dim=1, keepdim=True), q.square().sum(dim=1, keepdim=True)
    # One product gives the exponents: (2p, -|p|^2, 1) . (q, 1, -|q|^2) = -|p - q|^2.
    left = torch.cat([2 * p, -p_norms, torch.ones_like(p_norms)], dim=1)
    right = torch.cat([q, torch.ones_like(q_norms), -q_norms], dim=1)
    recorded = left.requires_grad or right.requires_grad
    buffer = left.new_empty(0 if recorded else min(len(p), CHUNK) * min(len(q), CHUNK))
    total = torch.zeros((), dtype=torch.float64, device=p.device)
    for i, rows in enumerate(left.split(CHUNK)):
        for j, columns in enumerate(right.split(CHUNK)):
            if within and j < i:
                continue
            if recorded:
                kernel = (rows @ columns.T).exp()
            else:  # the same in place: fresh memory would cost more than the arithmetic
                kernel = buffer[: len(rows) * len(columns)].view(len(rows), len(columns))
                torch.mm(rows, columns.T, out=kernel).exp_()
            total = total + (2 if within and j > i else 1) * kernel.sum(dim=1).sum(dtype=torch.float64)
    return total - len(p) if within else total  # the diagonal, k(p_i, p_i) = 1, does not belong to the sum


def mmd2(
    p: Tensor | np.ndarray,
    q: Tensor | np.ndarray,
    bandwidth: Tensor | float | None = None,
    *,
    of: Literal["squared", "distance"] = "squared",
    seed: int = 0,
) -> Tensor:
    """Return the unbiased squared maximum mean discrepancy of two feature sets under an RBF kernel.

    It may be negative, and is nan if a set has fewer than two members.

    Unbiased for samples drawn at random. If p has equally many of each of k classes, two of its n members are of one
    class too rarely, and for aligned features the estimate comes out below zero, by up to (k - 1) / (k (n - 1)).

    The bandwidth is that of `median_bandwidth` unless it is given. Differentiable, and exact for sets of any size.
    """
    p, q = torch.as_tensor(p), torch.as_tensor(q)
    kind = torch.promote_types(torch.promote_types(p.dtype, q.dtype), torch.float32)
    p, q = p.to(kind), q.to(kind)
    if min(len(p), len(q)) < 2:
        return p.new_full((), torch.nan, dtype=torch.float64)
    centre = q.detach().mean(dim=0)  # distances do not change, float32 loses fewer digits
    p, q = p - centre, q - centre
    gamma = median_bandwidth(p, q, of=of, seed=seed) if bandwidth is None else bandwidth
    gamma = torch.as_tensor(gamma, dtype=p.dtype, device=p.device)
    n, m = len(p), len(q)
    return (
        kernel_sum(p, None, gamma) / (n * (n - 1))
        + kernel_sum(q, None, gamma) / (m * (m - 1))
        - 2 * kernel_sum(p, q, gamma) / (n * m)
    )


class RiskBound(NamedTuple):
    """The four terms of Theorem 1 in the order of the paper, the gap that they bound, and the remainder they omit."""

    features_true: float
    labels_true: float
    features_predicted: float
    labels_predicted: float
    remainder: float
    """|mean(LSE - max) over unlabelled - the same over labelled|, which the paper's approximation drops."""
    gap: float
    """|R(unlabelled) - R(labelled)|, the difference of the two cross-entropies."""

    @property
    def total(self) -> float:
        """The paper's bound: the sum of its four terms. gap <= total + remainder always holds."""
        return self.features_true + self.labels_true + self.features_predicted + self.labels_predicted

    def as_dict(self) -> dict[str, float]:
        return {**self._asdict(), "total": self.total}


def risk_bound(
    features_l: Tensor, y_l: Tensor, features_u: Tensor, y_u: Tensor, weight: Tensor, bias: Tensor
) -> RiskBound:
    """Return the terms of Theorem 1 for z = W f + b, from the features and true labels of both sets."""
    W, b = weight.double(), bias.double()
    f_l, f_u = features_l.double(), features_u.double()
    z_l, z_u = f_l @ W.T + b, f_u @ W.T + b
    K = len(b)

    def feature_term(labels_l: Tensor, labels_u: Tensor) -> float:
        means_l = F.one_hot(labels_l, K).double().T @ f_l / len(f_l)
        means_u = F.one_hot(labels_u, K).double().T @ f_u / len(f_u)
        return float((W.abs() * (means_l - means_u).abs()).sum())

    def label_term(labels_l: Tensor, labels_u: Tensor) -> float:
        shares_l = torch.bincount(labels_l, minlength=K).double() / len(f_l)
        shares_u = torch.bincount(labels_u, minlength=K).double() / len(f_u)
        return float((b.abs() * (shares_l - shares_u).abs()).sum())

    def slack(z: Tensor) -> Tensor:
        return (z.logsumexp(dim=1) - z.amax(dim=1)).mean()

    h_l, h_u = z_l.argmax(dim=1), z_u.argmax(dim=1)
    return RiskBound(
        features_true=feature_term(y_l, y_u),
        labels_true=label_term(y_l, y_u),
        features_predicted=feature_term(h_l, h_u),
        labels_predicted=label_term(h_l, h_u),
        remainder=float((slack(z_u) - slack(z_l)).abs()),
        gap=float((F.cross_entropy(z_u, y_u) - F.cross_entropy(z_l, y_l)).abs()),
    )
