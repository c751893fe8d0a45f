"""Benchmark: training speed relative to a bare PyTorch loop, measured in turns in one process."""

from afda.errors import UserError
from afda.experiments.bench import images, mmd, start, steps, views
from afda.experiments.bench.timing import Row, Task
from afda.machine.runtime import Runtime

__all__ = ["MEANINGS", "Row", "Task", "list_tasks"]

MEANINGS = {
    "step_efficiency": "of the speed of a bare PyTorch loop; 1 is the limit",
    "alignment_price": "additional time per step for alignment; 0 is free",
    "precision_gain": "times as fast as float32 in the default memory layout",
    "step_precision_gain": "times as fast in bfloat16 as in float32, both channels-last",
    "strong_view": "of a forward and backward pass; 0.1 is the goal",
    "predict_efficiency": "of the speed of bare forward passes; 1 is the limit",
    "decode_efficiency": "of the speed of bare Pillow decoding; 1 is the limit",
    "step_size_ratio": "times as long per step with 100 times as many images; 1 is ideal",
    "mmd_ratio": "times as long as its matrix products; 1 is the limit",
    "mmd_peak_mb": "MB of memory at most, torch included",
    "mmd_growth_exponent": "exponent of time in the number of images; 2 is quadratic",
    "help_seconds": "s until `afda --help` has answered",
    "first_step_seconds": "s until the first step is logged",
}
"""The meaning of a row's value, by the first part of the row's name."""


def list_tasks(runtime: Runtime, only: str = "") -> dict[str, Task]:
    """Return all measurements, or those with rows whose names begin with `only`; raise a UserError if there are none.

    MMD^2 comes first, so that its peak of memory is not that of another measurement.
    """
    tasks: dict[str, Task] = {
        "mmd": mmd.measure_mmd,
        "help_seconds": lambda: start.measure_seconds("help_seconds", start.show_help),
        "first_step_seconds": lambda: start.measure_seconds("first_step_seconds", start.run_first_step),
        "strong_view": lambda: views.measure_strong_view(runtime),
        "predict_efficiency": lambda: images.measure_predict_efficiency(runtime),
        "decode_efficiency": images.measure_decode_efficiency,
        **dict(steps.list_tasks(runtime)),
    }
    selected = {
        name: task
        for name, task in tasks.items()
        if any(row.startswith(only) or only.startswith(row + "/") for row in list_rows(name))
    }
    if not selected:
        raise UserError(
            f"No measurement begins with {only!r}; choose from {', '.join(MEANINGS)}, of which the first four continue "
            f"with a net ({' or '.join(steps.NETS)}), as in step_efficiency/cpu/vat or precision_gain/cpu."
        )
    return selected


def list_rows(task: str) -> list[str]:
    """Return the beginnings of the names of a task's rows; steps with and without alignment are measured together."""
    if task == "mmd":
        return [name for name in MEANINGS if name.startswith("mmd_")]
    return [task, task.replace("step_efficiency", "alignment_price")]
