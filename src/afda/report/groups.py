"""Relations between runs: the baseline of each, and groups that differ in nothing but the seed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from afda.report.load_runs import LoadedRun
from afda.runs.directory import BASELINE
from afda.runs.verdict import Comparison, compare_results, compare_seeds


@dataclass(frozen=True)
class Average:
    """The mean over seeds and, with at least two, the standard deviation."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    runs: list[int]
    """Their positions among all runs."""
    method: str
    results: dict[str, Average]
    """The averages of their results, by the name of the metric."""
    seconds: float


def find_baseline(run: LoadedRun, runs: Sequence[LoadedRun]) -> int | None:
    """Return the index of the supervised-only run with the same labels, preferably the one inside the run's directory.

    None if there is none, or if the run is itself supervised-only or was not evaluated on test or validation images:
    by cross-validation, it was compared with candidates of its own.
    """
    if run.supervised_only or run.result.part not in ("test", "validation"):
        return None
    own = (run.path / BASELINE).resolve()
    candidates = (
        i
        for i, other in enumerate(runs)
        if other.supervised_only and other.labels_key == run.labels_key and other.result.part == run.result.part
    )
    return min(candidates, key=lambda i: runs[i].path.resolve() != own, default=None)


def compare_with_baseline(
    number: int, baseline: int | None, runs: Sequence[LoadedRun], groups: Sequence[Group]
) -> Comparison | None:
    """Compare all seeds of a run with all of its baseline, or one with the other if there are no more; None without.

    The arguments are the positions of both among the runs.
    """
    if baseline is None:
        return None
    sides = [next(group.runs for group in groups if i in group.runs) for i in (number, baseline)]
    seeds = compare_seeds(*([runs[i].result for i in side] for side in sides))
    return seeds or compare_results(runs[number].result, runs[baseline].result)


def group_runs(runs: Sequence[LoadedRun], names: Sequence[str], metrics: Collection[str]) -> list[Group]:
    """Group runs by everything but the seed and average these metrics of their results.

    Of groups with the same method, each is told apart by the name of its first run.
    """
    members: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault(run.seeds_key, []).append(i)
    methods = [runs[numbers[0]].method for numbers in members.values()]
    return [
        Group(
            numbers,
            method if methods.count(method) == 1 else f"{method}, {names[numbers[0]]}",
            average_results([runs[i] for i in numbers], metrics),
            mean(runs[i].result.seconds for i in numbers),
        )
        for method, numbers in zip(methods, members.values(), strict=True)
    ]


def average_results(runs: Sequence[LoadedRun], metrics: Collection[str]) -> dict[str, Average]:
    """Return the average of each metric over the runs whose results have it."""
    averages = {}
    for name in metrics:
        values = [value for run in runs if (value := read_results(run, [name]).get(name)) is not None]
        if values:
            averages[name] = Average(mean(values), stdev(values) if len(values) > 1 else None)
    return averages


def read_results(run: LoadedRun, metrics: Collection[str]) -> dict[str, float]:
    """Return these metrics of a run's result, as far as it has them."""
    values = {name: getattr(run.result, name, None) for name in metrics}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
