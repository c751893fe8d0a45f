"""What a piece of code asks of the processor: its products and updates, counted with their shapes."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

HEAVY = {"convolution", "convolution_backward", "addmm", "mm", "_fused_adam_"}


class HeavyWork(TorchDispatchMode):
    """While it is entered, `done` counts products by the shapes and precision of what they take, and, of those on the
    way back, by what they give; and updates by their number of weights."""

    def __init__(self):
        super().__init__()
        self.done = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name == "_fused_adam_":
            self.done[name, sum(p.numel() for p in args[0])] += 1
        elif name in HEAVY:
            taken = tuple((tuple(a.shape), a.dtype) for a in args if isinstance(a, torch.Tensor))
            self.done[name, taken, tuple(args[-1]) if name == "convolution_backward" else ()] += 1
        return func(*args, **(kwargs or {}))
