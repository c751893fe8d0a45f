"""Work done by several processes that have joined a group, and how far their results are from those of one."""

import torch
from torch.multiprocessing import spawn

from afda.machine.group import join_group, leave_group
from contract import CPU

TOLERANCE = 1e-9
"""Of the largest entry of a tensor of weights, statistics or optimiser state, after three updates in float64."""
SHAKE_SHAKE = 1e-7
"""Its skips have biases before a BatchNorm: their gradient is nothing but rounding, which Adam magnifies."""


def run_in_processes(work, count, folder, *arguments):
    """Run work(group, *arguments) in processes that have joined, and return what each of them returned."""
    spawn(run_one, (count, str(folder), work, arguments), nprocs=count)
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


def run_one(rank, count, folder, work, arguments):
    torch.set_num_threads(1)
    group = join_group(rank, count, CPU.device, f"{folder}/meeting")
    torch.save(work(group, *arguments), f"{folder}/{rank}.pt")
    leave_group(group)


def measure_distance(one, other):
    """Return the largest difference, by the largest entry.

    Below 0.01 an entry counts as 0.01, because some gradients are nothing but rounding.
    """
    one, other = one.double(), other.double()
    return float((one - other).abs().max() / one.abs().max().clamp_min(0.01))


def assert_agreement(cases, compute, found):
    """Check that each case's state on each process is that of one process alone, which `compute(case)` returns."""
    for i, case in enumerate(cases):
        alone = compute(case)
        assert len(alone) > 20
        off = max(measure_distance(*pair) for states in found for pair in zip(alone, states[i], strict=True))
        assert off < (SHAKE_SHAKE if "shake-shake" in case else TOLERANCE), (case, off)
