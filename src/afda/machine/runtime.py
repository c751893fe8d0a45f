"""Device, precision, threads and memory of this machine."""

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from afda.errors import UserError

PRECISIONS = ("auto", "float32", "bfloat16")
WIDE_ENOUGH = 32
"""Smallest number of channels for which `auto` selects bfloat16 on a CPU. It is compared with the narrowest convolution
after the first; narrower nets gain little (docs/explanation/performance.md)."""

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Machine:
    """Hardware and software of a run, as environment.json records them."""

    device: str
    device_name: str
    precision: str
    emulated: bool
    threads: int
    processes: int
    python: str
    torch: str
    platform: str


@dataclass(frozen=True)
class Runtime:
    """Device and precision of the network passes."""

    device: torch.device
    precision: str = "float32"
    """`auto` stands for a precision that `choose_precision` has yet to select for a net."""
    is_automatic: bool = False
    """Whether `choose_precision` selected the precision."""

    def choose_precision(self, net: nn.Module, gains_little: bool = False) -> "Runtime":
        """Return this runtime with the fastest precision for a net if the precision is `auto`.

        `gains_little` says that on a CPU the speed of bfloat16 is not worth its rounding, however wide the net is.
        """
        if self.precision != "auto":
            return self
        channels = [layer.out_channels for layer in net.modules() if isinstance(layer, nn.Conv2d)]
        wide = min(channels[1:], default=0) >= WIDE_ENOUGH and not gains_little
        gains = (wide or self.device.type == "cuda") and has_fast_bfloat16(self.device)
        return replace(self, precision="bfloat16" if gains else "float32", is_automatic=True)

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute the passes inside this context in the runtime's precision."""
        with contextlib.ExitStack() as stack:
            if self.precision == "bfloat16":
                stack.enter_context(torch.autocast(self.device.type, dtype=torch.bfloat16))
                if self.is_emulated:
                    stack.enter_context(EmulatedProducts())
            yield

    @property
    def is_emulated(self) -> bool:
        """Whether bfloat16 is emulated because the CPU lacks it."""
        return self.precision == "bfloat16" and self.device.type == "cpu" and not has_fast_bfloat16(self.device)

    def place(self, module: Module) -> Module:
        """Move a module to the device, its convolutions in the fast memory layout, and return it."""
        module.to(self.device)
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module

    def describe(self, processes: int = 1) -> Machine:
        """Return the hardware and software of a run of this many processes."""
        return Machine(
            device=str(self.device),
            device_name=torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else get_processor_name(),
            precision=self.precision,
            emulated=self.is_emulated,
            threads=torch.get_num_threads(),
            processes=processes,
            python=platform.python_version(),
            torch=torch.__version__,
            platform=platform.platform(),
        )


class EmulatedProducts(TorchFunctionMode):
    """Compute convolutions and linear layers under autocast with bfloat16 rounding, on a CPU without bfloat16.

    Hardware with bfloat16 multiplies in it and accumulates in float32. Rounding to bfloat16 before and after a float32
    product gives the same result, forward and backward, except for the order of the sum. It is faster than torch's own
    emulation. Gradients of passes that share a backward pass accumulate in float32 here and in bfloat16 there.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}

        def round_to_bfloat16(value: Any) -> Any:
            return value.bfloat16().float() if isinstance(value, Tensor) else value

        if func not in (torch.conv2d, torch.nn.functional.linear) or not torch.is_autocast_enabled("cpu"):
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            named = {name: round_to_bfloat16(value) for name, value in kwargs.items()}
            return func(*map(round_to_bfloat16, args), **named).bfloat16()


def select_runtime(device: str = "auto", precision: str = "auto", threads: int | None = None) -> Runtime:
    """Return a runtime on the requested device, or on a GPU if there is one.

    Sets the number of CPU threads. Raises a UserError if the device cannot be used.
    """
    keep_freed_memory()
    if threads is not None:
        torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and "LOCAL_RANK" in os.environ:  # one of several processes, each with its own GPU
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        selected = torch.device(device)
        torch.zeros(1, device=selected).item()
    except (RuntimeError, AssertionError):
        raise UserError(f"The device {device!r} cannot be used on this machine; try --device cpu.") from None
    # By default a GPU's convolutions round float32 to ten bits of mantissa, too few for VAT's small perturbation.
    torch.backends.cudnn.allow_tf32 = False
    return Runtime(selected, precision)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return True if the hardware multiplies in bfloat16; without such hardware bfloat16 is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def keep_freed_memory(keep: bool = True) -> None:
    """Stop glibc from returning freed memory to the system between steps, or restore its default.

    Every step allocates and frees the same large blocks. By default the kernel zeroes each block again, page by page,
    which costs a third of a training step of a narrow net on a CPU.
    """
    if sys.platform == "linux" and "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            glibc = ctypes.CDLL(None)
            trim_threshold, top_pad, mmap_max = -1, -2, -4
            glibc.mallopt(mmap_max, 0 if keep else 2**16)
            glibc.mallopt(trim_threshold, 2**31 - 1 if keep else 2**17)
            glibc.mallopt(top_pad, 2**26 if keep else 2**17)
            if not keep:
                glibc.malloc_trim(0)


def synchronize() -> None:
    """Wait until a GPU has finished its work; call this before reading the clock."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def list_gpus() -> list[str]:
    """Return the GPUs that this process may use, named as in CUDA_VISIBLE_DEVICES."""
    count = torch.cuda.device_count()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return allowed.split(",")[:count] if allowed else [str(i) for i in range(count)]


def get_processor_name() -> str:
    """Return the model name of this machine's CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def get_memory_size() -> int:
    """Return the size of this machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
