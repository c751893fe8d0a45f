"""The machine: device, precision, threads and memory."""

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from afda import processes
from afda.errors import UserError

PRECISIONS = ("auto", "float32", "bfloat16")
WIDE_ENOUGH = 32
"""Channels of a net's narrowest convolution, the first aside, from which on bfloat16 is chosen on a CPU: with fewer it
gains little (docs/performance.md)."""


@dataclass(frozen=True)
class Runtime:
    """Where and in which precision the passes run."""

    device: torch.device
    precision: str = "float32"
    """Or `auto`, until a net is there to choose for."""
    free: bool = False
    """Whether the precision was left to choose."""

    def suited(self, net: nn.Module, gains_little: bool = False) -> "Runtime":
        """This runtime with the precision that is fast for this net, if that was left to choose.

        `gains_little`: bfloat16 is not worth its rounding on a CPU, however wide the net is.
        """
        if self.precision != "auto":
            return self
        channels = [layer.out_channels for layer in net.modules() if isinstance(layer, nn.Conv2d)]
        wide = min(channels[1:], default=0) >= WIDE_ENOUGH and not gains_little
        gains = (wide or self.device.type == "cuda") and fast_bfloat16(self.device)
        return replace(self, precision="bfloat16" if gains else "float32", free=True)

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """Passes inside compute in this runtime's precision."""
        with contextlib.ExitStack() as stack:
            if self.precision == "bfloat16":
                stack.enter_context(torch.autocast(self.device.type, dtype=torch.bfloat16))
                if self.emulates:
                    stack.enter_context(EmulatedProducts())
            yield

    @property
    def emulates(self) -> bool:
        """Whether the precision is one that the CPU does not have."""
        return self.precision == "bfloat16" and self.device.type == "cpu" and not fast_bfloat16(self.device)

    def place(self, module: nn.Module) -> nn.Module:
        """The module on the device, its convolutions in the layout that is fast."""
        return module.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def kept(self, x: Tensor) -> Tensor:
        """Training images on the device, if they leave half of its free memory to the net; else where they are."""
        if self.device.type == "cuda" and x.nbytes > torch.cuda.mem_get_info(self.device)[0] / 2:
            return x
        return x.to(self.device)

    def picked(self, x: Tensor, rows: Tensor) -> Tensor:
        """These rows of what is `kept`, on the device. A GPU is not waited for: what goes there goes from memory that
        it can read by itself."""
        if self.device.type != "cuda":
            return x[rows]
        if x.device.type != "cuda":
            return x[rows].pin_memory().to(self.device, non_blocking=True)
        return x[rows.pin_memory().to(self.device, non_blocking=True)]

    def describe(self) -> dict[str, Any]:
        return {
            "device": str(self.device),
            "device_name": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else processor(),
            "precision": self.precision,
            "emulated": self.emulates,
            "threads": torch.get_num_threads(),
            "processes": processes.count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": platform.platform(),
        }


class EmulatedProducts(TorchFunctionMode):
    """Convolutions and linear layers under autocast, on a CPU that has no bfloat16: rounded alike, but in float32.

    Hardware that has it multiplies bfloat16 and adds up in float32. Rounding to bfloat16 before and after a product in
    float32 gives the same but for the order of the sum, forwards and backwards, and does not take torch's slow way.
    Gradients of passes that go back together add up in float32 here, in bfloat16 there.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}

        def rounded(value: Any) -> Any:
            return value.bfloat16().float() if isinstance(value, Tensor) else value

        if func not in (torch.conv2d, torch.nn.functional.linear) or not torch.is_autocast_enabled("cpu"):
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return func(*map(rounded, args), **{name: rounded(value) for name, value in kwargs.items()}).bfloat16()


def runtime(device: str = "auto", precision: str = "auto", threads: int | None = None) -> Runtime:
    """The best device there is, or the one asked for."""
    keep_freed_memory()
    if threads is not None:
        torch.set_num_threads(threads)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and "LOCAL_RANK" in os.environ:  # one of several processes, each with a GPU of its own
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError):
        raise UserError(f"The device {device!r} cannot be used on this machine; try --device cpu.") from None
    # float32 is to be float32: by default a GPU's convolutions round it to ten bits, in which VAT's probe is lost.
    torch.backends.cudnn.allow_tf32 = False
    return Runtime(chosen, precision)


def fast_bfloat16(device: torch.device) -> bool:
    """Whether the machine multiplies bfloat16 in hardware; elsewhere it takes longer than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def keep_freed_memory(keep: bool = True) -> None:
    """Stop glibc from handing freed memory back to the system between steps, or let it again.

    Every step allocates and frees the same large blocks. By default each comes fresh from the kernel, zeroed page by
    page, which costs a third of a step of a narrow net on a CPU.
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


def settle() -> None:
    """Wait for what a GPU still has to do, before the clock is read."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return allowed.split(",")[:count] if allowed else [str(i) for i in range(count)]


def processor() -> str:
    """The name of this machine's CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
