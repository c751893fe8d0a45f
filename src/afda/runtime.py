"""The machine: device, precision, threads and memory. The only file that knows of them."""

import contextlib
import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from afda.errors import UserError

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Runtime:
    """Where and in which precision the passes run."""

    device: torch.device
    precision: str = "float32"

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Passes inside compute in this runtime's precision."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def place(self, module: nn.Module) -> nn.Module:
        """The module on the device, its convolutions in the layout that is fast."""
        return module.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def describe(self) -> dict[str, Any]:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.processor()
        return {
            "device": str(self.device),
            "device_name": name or platform.machine(),
            "precision": self.precision,
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": platform.platform(),
        }


def runtime(device: str = "auto", precision: str = "auto", threads: int | None = None) -> Runtime:
    """The best device there is, or the one asked for."""
    keep_freed_memory()
    if threads is not None:
        torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError):
        raise UserError(f"The device {device!r} cannot be used on this machine; try --device cpu.") from None
    if precision == "auto":
        fast = chosen.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bfloat16" if fast else "float32"
    return Runtime(chosen, precision)


def keep_freed_memory() -> None:
    """Stop glibc from handing freed memory back to the system between steps.

    Every step allocates and frees the same large blocks. By default each comes fresh from the kernel, zeroed page by
    page, which costs a third of a step of a narrow net on a CPU.
    """
    if sys.platform == "linux" and "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            trim_threshold, top_pad, mmap_max = -1, -2, -4
            mallopt(mmap_max, 0)
            mallopt(trim_threshold, 2**31 - 1)
            mallopt(top_pad, 2**26)


def memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
