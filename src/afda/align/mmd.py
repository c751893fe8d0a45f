"""Alignment by matching moments: the squared maximum mean discrepancy itself as a loss (Long et al., 2015)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from afda import losses
from afda.align import Align, Alignment
from afda.measures import median_bandwidth, mmd2


class MMD(Align):
    """MMD^2 between the features of the batch, averaged over kernels of several widths; no discriminator."""

    bandwidths: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.25, 0.5, 1.0, 2.0, 4.0), min_length=1, description="kernel bandwidths as multiples of the median heuristic's"
    )

    def build(self, features: int) -> "MMDAlignment":
        return MMDAlignment(self.bandwidths)


class MMDAlignment(Alignment):
    def __init__(self, bandwidths: tuple[float, ...] = (1.0,)) -> None:
        super().__init__()
        self.bandwidths = bandwidths

    def forward(self, features: Tensor, labelled: losses.Labelled, mu: float = 1.0) -> Tensor:
        # Distances are differences of nearly equal numbers: full precision.
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(torch.promote_types(features.dtype, torch.float32))
            p, q = losses.of_kinds(features, labelled)
            gamma = median_bandwidth(p, q)
            values = [mmd2(p, q, factor * gamma) for factor in self.bandwidths]
        return mu * sum(values, values[0].new_zeros(())) / len(values)
