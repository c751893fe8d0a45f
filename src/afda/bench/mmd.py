"""MMD^2 at the size of SVHN with 250 labels: its time against that of its matrix products, its memory, its growth."""

import contextlib
import math
import resource
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from afda.bench.timing import Row, in_turns, ratio
from afda.measures import CHUNK, mmd2

LABELLED, UNLABELLED, FEATURES = 250, 73_007, 128


def features(count: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(LABELLED, FEATURES, generator=random), torch.randn(count, FEATURES, generator=random)


def products(p: Tensor, q: Tensor) -> Callable[[], None]:
    """The three kernel matrices' products alone, each pair of rows once, into one buffer."""
    buffer = torch.empty(CHUNK * CHUNK)

    def multiplied(rows: Tensor, columns: Tensor) -> None:
        torch.mm(rows, columns.T, out=buffer[: len(rows) * len(columns)].view(len(rows), len(columns)))

    def do() -> None:
        blocks = q.split(CHUNK)
        multiplied(p, p)
        for i, block in enumerate(blocks):
            multiplied(p, block)
            for other in blocks[i:]:
                multiplied(block, other)

    return do


def forget_peak() -> None:
    """Start measuring the peak of this process's memory anew, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    if sys.platform == "linux":
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def mmd_rows(count: int = UNLABELLED) -> Iterator[Row]:
    p, q = features(count)
    _, quarter = features(count // 4)
    forget_peak()
    float(mmd2(p, q))
    yield Row("mmd_peak_mb", peak_mb(), 0.0)
    taken = in_turns(ours=lambda: mmd2(p, q), products=products(p, q), quarter=lambda: mmd2(p, quarter))
    yield ratio("mmd_ratio", taken["ours"], taken["products"])
    grown = [math.log(a / b, 4) for a, b in zip(taken["ours"], taken["quarter"], strict=True)]
    yield Row("mmd_growth_exponent", statistics.median(grown), max(grown) - min(grown))
