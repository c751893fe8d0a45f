"""This machine's speed against its own limit: ratios of times taken in turns, in one process."""

from collections.abc import Callable, Iterator

from afda.bench import images, mmd, start, steps
from afda.bench.timing import Row
from afda.errors import UserError
from afda.runtime import Runtime

Task = Callable[[], Iterator[Row]]
MEANINGS = {
    "step_efficiency": "of the speed of a bare loop; 1 is the limit",
    "alignment_price": "more time per step; 0 is nothing",
    "precision_gain": "times as fast as plain float32",
    "step_precision_gain": "times as fast in bfloat16 as in float32, both with channels last",
    "predict_efficiency": "of the speed of bare passes; 1 is the limit",
    "decode_efficiency": "of the speed of bare decoding",
    "step_size_ratio": "time per step with 100 times the images; 1 is no more",
    "mmd_ratio": "times as long as its products; 1 is the limit",
    "mmd_peak_mb": "MB at most, torch included",
    "mmd_growth_exponent": "of time with the number of images; 2 is quadratic",
    "help_seconds": "s",
    "first_step_seconds": "s until the first update is logged",
}
"""What the rows are, by the first part of their names."""


def tasks(runtime: Runtime, only: str = "") -> dict[str, Task]:
    """All that can be measured, or what has rows whose names begin with `only`. MMD^2 comes first, while the memory of
    the process is its own."""
    found: dict[str, Task] = {
        "mmd": mmd.mmd_rows,
        "help_seconds": lambda: start.seconds("help_seconds", start.helped),
        "first_step_seconds": lambda: start.seconds("first_step_seconds", start.first_step),
        "predict_efficiency": lambda: images.predict_efficiency(runtime),
        "decode_efficiency": images.decode_efficiency,
        **dict(steps.tasks(runtime)),
    }
    chosen = {
        name: task
        for name, task in found.items()
        if any(row.startswith(only) or only.startswith(row + "/") for row in rows_of(name))
    }
    if not chosen:
        raise UserError(
            f"Nothing that is measured begins with {only!r}. There are {', '.join(MEANINGS)}; the first four go on "
            f"with a net ({' or '.join(steps.NETS)}), as in step_efficiency/cpu/vat or precision_gain/cpu."
        )
    return chosen


def rows_of(task: str) -> list[str]:
    """What the names of a task's rows begin with. Steps with and without alignment are measured together."""
    if task == "mmd":
        return [name for name in MEANINGS if name.startswith("mmd_")]
    return [task, task.replace("step_efficiency", "alignment_price")]
