"""Several processes that train one net as one process would: what each has of a batch, and what they tell each other.

Each process passes its own rows of every batch through the net. `whole` then gives every process the outputs of all
rows, so that losses, alignment and discriminator are computed from the batch of the recipe, on every process alike, and
know nothing of this. Normalisation uses the statistics of all rows, and noise is drawn for all of them, of which each
process takes its own: so the number of processes does not decide the outcome.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from afda.errors import RunFailed

WAIT = timedelta(days=7)
"""The others wait while the first process evaluates. A process that ends is noticed by its connection, not by time."""


class ProcessLost(RunFailed):
    """A process that the others need has ended."""


@dataclass
class Membership:
    """Which of how many processes this one is; alone, unless it has joined others."""

    rank: int = 0
    count: int = 1


_here = Membership()


def rank() -> int:
    """The number of this process; the first one, 0, alone writes and prints."""
    return _here.rank


def count() -> int:
    """How many processes train together; one unless they have joined."""
    return _here.count


def join(rank: int, count: int, device: torch.device, meeting: str | None = None) -> None:
    """Become one of several: over gloo for what is on CPUs, nccl for what is on GPUs. They find each other by a file on
    this machine, or as torchrun arranges it."""
    store = dist.FileStore(meeting, count) if meeting else None
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
    with connected():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=count,
            timeout=WAIT,
        )
    _here.rank, _here.count = rank, count


def leave() -> None:
    if count() > 1:
        dist.destroy_process_group()
        _here.rank, _here.count = 0, 1


@contextmanager
def connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost("Another process of this training has ended") from error


def mine(rows: Tensor, dim: int = 0) -> Tensor:
    """This process's part of what there is for all rows of the batch."""
    size = rows.shape[dim] // count()
    return rows.narrow(dim, rank() * size, size)


def whole(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of the batch.

    What is computed from them is computed on every process alike, so going backward each keeps the gradient of its own
    rows and nothing is sent.
    """
    return rows if count() == 1 else Everyones.apply(rows, False)


def everyones(value: Tensor) -> Tensor:
    """The values of all processes, stacked. Going backward, each receives the gradients that all have for its own."""
    return Everyones.apply(value[None], True)


class Everyones(torch.autograd.Function):
    """Concatenation over the processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, add_gradients: bool) -> Tensor:
        ctx.add_gradients = add_gradients
        joined = x.new_empty((count() * len(x), *x.shape[1:]))
        with connected():
            dist.all_gather(list(joined.chunk(count())), x.contiguous())
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous()
        return mine(added(gradient) if ctx.add_gradients else gradient), None


def added(value: Tensor) -> Tensor:
    """The sum over the processes."""
    total = value.clone()
    with connected():
        dist.all_reduce(total)
    return total


def add_gradients(module: nn.Module) -> None:
    """Make each gradient the sum of what the processes found from their rows: that of the whole batch.

    One message after `backward`, in place of DistributedDataParallel: that class averages where here gradients add up,
    wants all passes of a step to go through its wrapper, and stops at a weight without a gradient (a second head that
    the method does not use) unless it searches the graph at every step.
    """
    if count() == 1:
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    total = added(torch.cat([g.flatten() for g in gradients]))
    for gradient, sums in zip(gradients, total.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(sums.view_as(gradient))


def any_says(yes: bool) -> bool:
    """Whether a process says yes, at every process."""
    return yes if count() == 1 else bool(added(torch.tensor(int(yes))))


def told(content: bytes = b"") -> bytes:
    """What the first process says, at every process."""
    if count() == 1:
        return content
    size = torch.tensor(len(content))
    with connected():
        dist.broadcast(size, 0)
        if not size:
            return b""
        held = bytearray(content) if rank() == 0 else bytearray(int(size))
        dist.broadcast(torch.frombuffer(held, dtype=torch.uint8), 0)
    return bytes(held)
