"""Training curves: every number in a run's log, with its declaration."""

from collections.abc import Iterable, Sequence

from afda.recipe import Recipe
from afda.registry import Metric
from afda.runs.log import LogLine
from afda.training.metrics import BALANCED_ERROR, describe_metrics

Curve = list[tuple[int, float]]
"""Pairs of update and value."""
TEST_ERROR = Metric(
    name="test_error",
    label="test error",
    description="Error on the test images, which are used only after the last update.",
    unit="%",
    direction="lower",
)
CROSS_VALIDATED_ERROR = Metric(
    name="cross_validated_error",
    label="cross-validated error",
    description="Error on labelled images, each by a shorter training without its label.",
    unit="%",
    direction="lower",
)
RESULTS = (TEST_ERROR, CROSS_VALIDATED_ERROR, BALANCED_ERROR)
"""Metrics of a result that no log has."""


def list_declared_metrics(recipe: Recipe) -> dict[str, Metric]:
    """Return the metrics that a run of this recipe may have in its log or result, by name."""
    return {**{metric.name: metric for metric in RESULTS}, **describe_metrics(recipe)}


def read_curves(log: Sequence[LogLine], test_curve: dict[str, float] | None = None) -> dict[str, Curve]:
    """Return the curve of each number in a log; `test_curve` has test errors by update."""
    curves: dict[str, Curve] = {}
    for line in log:
        for name, value in line.values.items():
            if value is not None:
                curves.setdefault(name, []).append((line.step, value))
    if test_curve:
        curves[TEST_ERROR.name] = [(int(step), error) for step, error in test_curve.items()]
    return curves


def read_bound_curves(log: Sequence[LogLine]) -> dict[str, Curve]:
    """Return the curve of each term of Theorem 1; empty if the log has none."""
    curves: dict[str, Curve] = {}
    for line in log:
        for name, value in (line.bound or {}).items():
            curves.setdefault(name, []).append((line.step, value))
    return curves


def read_warnings(log: Sequence[LogLine]) -> list[str]:
    """Return the warnings in a log, each with its update."""
    return [f"After {line.step} updates: {line.warning}" for line in log if line.warning is not None]


def describe_names(names: Iterable[str], declared: dict[str, Metric]) -> dict[str, Metric]:
    """Return the declarations of these names, loss terms first and then in the order of `declared`.

    A name that no plug-in declares, as one that is no longer installed, comes last and is its own label.
    """
    given = dict.fromkeys(names)
    known = sorted((metric for name, metric in declared.items() if name in given), key=lambda metric: not metric.term)
    unknown = (Metric(name=name, label=name, description="") for name in given if name not in declared)
    return {metric.name: metric for metric in (*known, *unknown)}
