"""What the paper's full grid costs: its runs, their updates, and the floating-point operations of one, counted.

Prints a line per kind of run, and what an update takes on one core of this machine. See docs/scaling.md.
"""

import time
from collections import Counter

import torch
from torch.utils.flop_counter import FlopCounterMode

from afda.algorithm import steps
from afda.data.images import DataSet, Images
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.reproduce import EXPERIMENTS
from afda.runtime import runtime
from afda.training import Training, begin

SHARE = 4
"""Counted on a quarter of a batch: the work of a step is proportional to its images."""
PICTURES = torch.randint(256, (4500, 3, 32, 32), dtype=torch.uint8)
DATA = DataSet("noise", tuple("0123456789"), Images(PICTURES, torch.arange(len(PICTURES)) % 10))


def beginning(made: Recipe, share: int) -> Training:
    batch = [f"labelled_batch={made.labelled_batch // share}", f"unlabelled_batch={made.unlabelled_batch // share}"]
    return begin(made.with_settings([*batch, 'preparation.normalise="centre"']), DATA, runtime("cpu", "float32", 1))


def operations(made: Recipe) -> int:
    """Of one update."""
    with FlopCounterMode(display=False) as counter:
        next(steps(beginning(made, SHARE)))
    return SHARE * counter.get_total_flops()


def seconds(made: Recipe, updates: int = 3) -> tuple[float, float]:
    """Of one update, after a first one: of the core, and by the clock."""
    following = steps(beginning(made, 1))
    next(following)
    core, clock = time.process_time(), time.monotonic()
    for _ in range(updates):
        next(following)
    return (time.process_time() - core) / updates, (time.monotonic() - clock) / updates


for method, align in (("supervised", "none"), ("supervised", "adversarial"), ("vat", "adversarial")):
    core, clock = seconds(recipe("svhn-ablation", DATA, method, align, 250))
    print(f"svhn-ablation {method} {align}: an update takes {core:.2f} s of one core, {clock:.2f} s by the clock")

cells = {cell for name, (_, chosen) in EXPERIMENTS.items() if name != "digits" for cell in chosen}
kinds: Counter[tuple[str, str, str, int]] = Counter()
example = {}
for cell in cells:
    made = recipe(f"{cell.data}-{cell.recipe}", DATA, cell.method, cell.align, cell.labels)
    kind = f"{cell.data}-{cell.recipe}", cell.method, cell.align, made.steps
    kinds[kind] += 1
    example[kind] = made

total, counted = 0, {}
print("recipe method alignment | cells updates GFLOP/update PFLOP/run")
for kind in sorted(kinds):
    if kind[:3] not in counted:  # the length changes nothing
        counted[kind[:3]] = operations(example[kind])
    each = counted[kind[:3]]
    total += kinds[kind] * each * kind[3]
    print(*kind[:3], "|", kinds[kind], kind[3], round(each / 1e9), round(each * kind[3] / 1e15), flush=True)
print(f"one seed of all {len(cells)} cells: {total / 1e18:.1f} EFLOP")
