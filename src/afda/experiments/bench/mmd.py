"""MMD^2 at the size of SVHN with 250 labels: its time relative to its matrix products, its memory and its growth."""

import contextlib
import math
import resource
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from afda.experiments.bench.timing import Row, compute_ratio, measure_in_turns
from afda.measures import CHUNK, mmd2

LABELLED, UNLABELLED, FEATURES = 250, 73_007, 128


def make_features(unlabelled: int) -> tuple[Tensor, Tensor]:
    """Return random features of the labelled and of the unlabelled images."""
    random = torch.Generator().manual_seed(0)
    return torch.randn(LABELLED, FEATURES, generator=random), torch.randn(unlabelled, FEATURES, generator=random)


def build_products(p: Tensor, q: Tensor) -> Callable[[], None]:
    """Return a function that computes only the products of the three kernel matrices.

    Each pair of rows is multiplied once, into one buffer.
    """
    buffer = torch.empty(CHUNK * CHUNK)

    def multiply(rows: Tensor, columns: Tensor) -> None:
        torch.mm(rows, columns.T, out=buffer[: len(rows) * len(columns)].view(len(rows), len(columns)))

    def run() -> None:
        blocks = q.split(CHUNK)
        multiply(p, p)
        for i, block in enumerate(blocks):
            multiply(p, block)
            for other in blocks[i:]:
                multiply(block, other)

    return run


def reset_peak() -> None:
    """Reset the peak of this process's memory, where the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def read_peak_mb() -> float:
    """Return the peak of this process's memory in MB."""
    if sys.platform == "linux":
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_mmd(unlabelled: int = UNLABELLED) -> Iterator[Row]:
    """Measure the memory and time of MMD^2, and the exponent of its growth from a quarter of the images to all."""
    p, q = make_features(unlabelled)
    _, quarter = make_features(unlabelled // 4)
    reset_peak()
    float(mmd2(p, q))
    yield Row("mmd_peak_mb", read_peak_mb(), 0.0)
    times = measure_in_turns(ours=lambda: mmd2(p, q), products=build_products(p, q), quarter=lambda: mmd2(p, quarter))
    yield compute_ratio("mmd_ratio", times["ours"], times["products"])
    exponents = [math.log(a / b, 4) for a, b in zip(times["ours"], times["quarter"], strict=True)]
    yield Row("mmd_growth_exponent", statistics.median(exponents), max(exponents) - min(exponents))
