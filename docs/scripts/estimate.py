"""Estimate the cost of the paper's full grid: runs, updates, and floating-point operations per update.

Prints a line per kind of run, and the time of an update on one core of this machine. See docs/explanation/cost.md.
"""

import time
from collections import Counter
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from afda.data.images import DataSet, Images
from afda.experiments.cells import EXPERIMENTS, Cell
from afda.machine.runtime import select_runtime
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.training.loop import run_updates
from afda.training.state import Training, begin

SHARE = 4
"""Operations are counted on a quarter of a batch: the work of an update is proportional to its images."""
MEASURED = (("supervised", "none"), ("supervised", "adversarial"), ("vat", "adversarial"))


@cache
def make_noise() -> DataSet:
    """Return random images with as many labels as the paper's experiments need."""
    pixels = torch.randint(256, (4500, 3, 32, 32), dtype=torch.uint8)
    return DataSet("noise", tuple("0123456789"), Images(pixels, torch.arange(len(pixels)) % 10))


def make_recipe(cell: Cell) -> Recipe:
    """Return the recipe of a cell at full length."""
    return recipe(f"{cell.data}-{cell.recipe}", make_noise(), cell.method, cell.align, cell.labels)


def begin_training(made: Recipe, share: int = 1) -> Training:
    """Return a training on noise with a share of the recipe's batch."""
    batch = [f"labelled_batch={made.labelled_batch // share}", f"unlabelled_batch={made.unlabelled_batch // share}"]
    changed = made.with_settings([*batch, 'preparation.normalise="centre"'])
    return begin(changed, make_noise(), select_runtime("cpu", "float32", 1))


def count_operations(made: Recipe) -> int:
    """Return the floating-point operations of one update."""
    with FlopCounterMode(display=False) as counter:
        next(run_updates(begin_training(made, SHARE)))
    return SHARE * counter.get_total_flops()


def measure_seconds(made: Recipe, updates: int = 3) -> tuple[float, float]:
    """Return the CPU time and the elapsed time of one update, after a first one."""
    following = run_updates(begin_training(made))
    next(following)
    core, clock = time.process_time(), time.monotonic()
    for _ in range(updates):
        next(following)
    return (time.process_time() - core) / updates, (time.monotonic() - clock) / updates


def list_cells() -> set[Cell]:
    """Return the cells of all tables and figures of the paper."""
    return {cell for name, experiment in EXPERIMENTS.items() if name != "digits" for cell in experiment.cells}


def main() -> None:
    for method, align in MEASURED:
        core, clock = measure_seconds(make_recipe(Cell("svhn", method, align, 250)))
        print(f"svhn-ablation {method} {align}: an update takes {core:.2f} s of one core, {clock:.2f} s by the clock")
    cells = list_cells()
    kinds = Counter((cell.data, cell.recipe, cell.method, cell.align, make_recipe(cell).steps) for cell in cells)
    examples = {(cell.data, cell.recipe, cell.method, cell.align): cell for cell in cells}
    counted = {kind: count_operations(make_recipe(cell)) for kind, cell in sorted(examples.items())}
    total = 0
    print("recipe method alignment | cells updates GFLOP/update PFLOP/run")
    for (data, name, method, align, steps), number in sorted(kinds.items()):
        each = counted[data, name, method, align]
        total += number * each * steps
        print(f"{data}-{name}", method, align, "|", number, steps, round(each / 1e9), round(each * steps / 1e15))
    print(f"one seed of all {len(cells)} cells: {total / 1e18:.1f} EFLOP")


if __name__ == "__main__":
    main()
