"""Alignment by matching moments: the squared maximum mean discrepancy itself as a loss (Long et al., 2015)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from afda import losses
from afda.align import Align
from afda.measures import median_bandwidth
from afda.methods import Loss, Step


class MMD(Align):
    """MMD^2 between the features of the batch, averaged over kernels of several widths; no discriminator."""

    bandwidths: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.25, 0.5, 1.0, 2.0, 4.0), min_length=1, description="kernel bandwidths as multiples of the median heuristic's"
    )

    def loss(self, step: Step) -> Loss:
        mu = self.mu(step.t)
        distance = self.compute_mmd2(step.clean.features, len(step.batch.y), self.weigh_labelled(step))
        return Loss({"alignment": mu * distance}, {"mu": mu})

    def compute_mmd2(self, features: Tensor, labelled: losses.Labelled, weights: Tensor | None = None) -> Tensor:
        """Return MMD^2 between labelled and unlabelled rows, averaged over the kernels; 0 if there is no estimate.

        `weights` are those of the labelled rows.
        """
        # Distances are differences of nearly equal numbers: full precision.
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(torch.promote_types(features.dtype, torch.float32))
            p, q = losses.split_rows(features, labelled)
            if min(len(p), len(q)) < 2:
                return 0 * features.sum()
            # As in `measures.mmd2`, but all kernels from one matrix of distances: a batch is small.
            x, n, m = torch.cat([p, q]) - q.detach().mean(dim=0), len(p), len(q)
            norms = x.square().sum(dim=1)
            distances = (norms[:, None] + norms - 2 * x @ x.T) / median_bandwidth(p, q)
            kernel = torch.stack([(-distances / factor).exp() for factor in self.bandwidths]).mean(dim=0).double()
            of_p, of_q, between = kernel[:n, :n], kernel[n:, n:], kernel[:n, n:]
            within_q = (of_q.sum() - of_q.trace()) / (m * (m - 1))
            if weights is None:
                return (of_p.sum() - of_p.trace()) / (n * (n - 1)) + within_q - 2 * between.mean()
            shares = weights.double() / weights.sum()
            pairs = (shares[:, None] * shares).fill_diagonal_(0)
            return (pairs * of_p).sum() / pairs.sum() + within_q - 2 * shares @ between.mean(dim=1)
