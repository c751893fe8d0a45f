"""A group of processes that train one net as a single process would.

Each process passes its own rows of every batch through the net. `gather` then gives every process the outputs of all
rows, so that losses, alignment and discriminator are computed from the whole batch on every process alike. BatchNorm
uses the statistics of all rows, and noise is drawn for all rows, of which each process takes its own: the number of
processes does not affect the result. A `Group` is passed to whatever needs it; nothing reads it from a global.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Its default arguments hold the process group if it is first imported while there is one, as some part of torch does.
# gloo's threads then outlive `destroy_process_group` and may abort the process at its end.
import torch.distributed.nn.functional
from torch import Tensor, nn

from afda.errors import RunFailed

WAIT = timedelta(days=7)
"""The others wait while rank 0 evaluates. A process that ends is noticed by its connection, not by this timeout."""


class ProcessLost(RunFailed):
    """A process that the others need has ended."""


@dataclass(frozen=True)
class Group:
    """This process's rank among `count` processes; a group of one exchanges nothing."""

    rank: int = 0
    count: int = 1

    def own(self, rows: Tensor, dim: int = 0) -> Tensor:
        """Return this process's part of the rows of a whole batch."""
        size = rows.shape[dim] // self.count
        return rows.narrow(dim, self.rank * size, size)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, in the order of the batch.

        Every process computes the same loss from them, divided by the number of processes, and gradients are summed
        afterwards. So the gradient of the sum of all losses with respect to a process's own rows is `count` times
        what that process finds, and nothing has to be sent backwards.
        """
        return rows if self.count == 1 else Gather.apply(rows, self, False)

    def gather_statistics(self, value: Tensor) -> Tensor:
        """Return the values of all processes, stacked; backwards, the gradients of all processes are summed."""
        return Gather.apply(value[None], self, True)

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over the processes."""
        if self.count == 1:
            return value
        total = value.clone()
        with notice_lost_processes():
            dist.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over the processes: the gradient of the whole batch.

        One message after `backward`, instead of DistributedDataParallel: that class wants all passes of a step to go
        through its wrapper, and stops at a weight without a gradient (a second head that the method does not use).
        """
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        total = self.sum(torch.cat([g.flatten() for g in gradients]))
        for gradient, sums in zip(gradients, total.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(sums.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any process."""
        return flag if self.count == 1 else bool(self.sum(torch.tensor(int(flag))))

    def broadcast(self, content: bytes = b"") -> bytes:
        """Broadcast bytes from rank 0 to all ranks."""
        if self.count == 1:
            return content
        size = torch.tensor(len(content))
        with notice_lost_processes():
            dist.broadcast(size, 0)
            if not size:
                return b""
            buffer = bytearray(content) if self.rank == 0 else bytearray(int(size))
            dist.broadcast(torch.frombuffer(buffer, dtype=torch.uint8), 0)
        return bytes(buffer)


ALONE = Group()
"""A process that trains by itself."""


def join_group(rank: int, count: int, device: torch.device, rendezvous: str | None = None) -> Group:
    """Connect this process to the others, over gloo on CPUs and nccl on GPUs.

    The processes find each other by a file on this machine, or as torchrun arranges it.
    """
    store = dist.FileStore(rendezvous, count) if rendezvous else None
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
    with notice_lost_processes():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=count,
            timeout=WAIT,
        )
    return Group(rank, count)


def leave_group(group: Group) -> None:
    """Disconnect this process from the others."""
    if group.count > 1:
        dist.destroy_process_group()


@contextmanager
def notice_lost_processes() -> Iterator[None]:
    """Turn a broken connection into `ProcessLost`."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost("Another process of this training has ended") from error


class Gather(torch.autograd.Function):
    """Concatenation over the processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, sum_gradients: bool) -> Tensor:
        ctx.group, ctx.sum_gradients = group, sum_gradients
        joined = x.new_empty((group.count * len(x), *x.shape[1:]))
        with notice_lost_processes():
            dist.all_gather(list(joined.chunk(group.count)), x.contiguous())
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradients[0].contiguous()
        total = ctx.group.sum(gradient) if ctx.sum_gradients else ctx.group.count * gradient
        return ctx.group.own(total), None, None
