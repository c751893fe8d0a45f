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
    "predict_efficiency": "of the speed of bare passes; 1 is the limit",
    "decode_efficiency": "of the speed of bare decoding",
    "step_size_ratio": "time per step with 100 times the images; 1 is no more",
    "mmd_ratio": "times as long as its products; 1 is the limit",
    "mmd_peak_mb": "MB",
    "mmd_growth_exponent": "of time with the number of images; 2 is quadratic",
    "help_seconds": "s",
    "first_step_seconds": "s",
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
    asked = only.replace("alignment_price", "step_efficiency")  # which are measured together
    chosen = {name: task for name, task in found.items() if name.startswith(asked) or asked.startswith(name + "/")}
    if asked.startswith("mmd_"):
        chosen = {"mmd": found["mmd"]}
    if not chosen:
        example = next(name for name in found if name.startswith("step_efficiency"))
        raise UserError(
            f"Nothing that is measured begins with {only!r}; there are {', '.join(MEANINGS)}, "
            f"of which those of a net go on with it ({' or '.join(steps.NETS)}) and a method, as in {example}."
        )
    return chosen
