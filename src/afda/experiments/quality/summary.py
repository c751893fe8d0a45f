"""What the scores of the quality suite say: mean errors, wins and losses with intervals, and the worst harm."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from afda.experiments.quality.cells import Score
from afda.experiments.quality.competitors import COLUMNS
from afda.experiments.quality.sets import SETS

OURS = "ours"
BASELINES = ("supervised", "logistic")
"""What uses the labels alone. Harm is measured against the better of them."""
SEMI_SUPERVISED = ("label_spreading", "self_training")


@dataclass(frozen=True)
class Row:
    """One set at one number of labels; errors are means over the seeds that all its methods have, in percent."""

    set: str
    labels_per_class: int
    seeds: int
    errors: Mapping[str, float]
    balanced_errors: Mapping[str, float]
    each: Mapping[str, Sequence[float]]
    """The errors of each seed, in the same order for every method."""

    @property
    def best(self) -> str:
        """The method with the least mean error, in hindsight; ours if it shares the first place."""
        return min(self.errors, key=lambda method: (self.errors[method], method != OURS))

    @property
    def harm(self) -> float | None:
        """Our mean error minus that of the better baseline; None if either was not run."""
        baselines = [self.errors[method] for method in BASELINES if method in self.errors]
        return self.errors[OURS] - min(baselines) if OURS in self.errors and baselines else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as `afda bench quality --json` prints it; a method that was not run is None."""
        return {
            "set": self.set,
            "labels_per_class": self.labels_per_class,
            "seeds": self.seeds,
            **{method: self.errors.get(method) for method in COLUMNS},
            "best": self.best,
            "role": SETS[self.set].role if self.set in SETS else None,
            "balanced_errors": dict(self.balanced_errors),
        }


def build_rows(scores: Iterable[Score]) -> list[Row]:
    """Return a row per set and number of labels, in the order of the scores."""
    groups: dict[tuple[str, int], dict[str, dict[int, Score]]] = {}
    for score in scores:
        group = groups.setdefault((score.set, score.labels_per_class), {})
        group.setdefault(score.method, {})[score.seed] = score
    rows = []
    for (name, labels), group in groups.items():
        seeds = sorted(set.intersection(*(set(of) for of in group.values())))
        found = {method: [group[method][seed] for seed in seeds] for method in COLUMNS if method in group}
        if seeds:
            errors = {method: [score.error for score in of] for method, of in found.items()}
            balanced = {method: mean(score.balanced_error for score in of) for method, of in found.items()}
            means = {method: mean(of) for method, of in errors.items()}
            rows.append(Row(name, labels, len(seeds), means, balanced, errors))
    return rows


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval by Student's t; without one if there is a single value."""

    mean: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Return the mean of some values with its interval."""
        if len(values) < 2:
            return cls(mean(values))
        from scipy.stats import t

        half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
        return cls(mean(values), mean(values) - half, mean(values) + half)

    @property
    def sign(self) -> int:
        """-1 or 1 if the whole interval is below or above 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


@dataclass(frozen=True)
class Duel:
    """Ours against one method: cells won, tied and lost by the 95 % interval over the seeds, and by the mean."""

    wins: int
    ties: int
    losses: int
    lower: int
    """Cells in which our mean error is lower."""
    equal: int
    difference: Interval
    """Our error minus the other's in points: mean over all cells, with its interval over the seeds."""


@dataclass(frozen=True)
class Harm:
    """The largest harm at one number of labels, in points; below 0 if there is none."""

    set: str
    points: float


@dataclass(frozen=True)
class Summary:
    """The suite in a few numbers; those of methods that were not run are left out."""

    cells: int
    duels: Mapping[str, Duel] = field(default_factory=dict)
    relative_reduction: float | None = None
    """Mean over the cells of 1 - ours / supervised-only, in percent."""
    reduction_of_mean: float | None = None
    """1 - mean of ours / mean of supervised-only, in percent."""
    better_than_semi_supervised: float | None = None
    """Share of cells, in percent, in which our mean error is below those of LabelSpreading and SelfTraining."""
    no_worse_than_semi_supervised: float | None = None
    """The same with equal errors: where a method has no error at all, nothing can be better."""
    worst_harm: Mapping[int, Harm] = field(default_factory=dict)
    """By the number of labels per class."""


def compare(rows: Sequence[Row], other: str) -> Duel:
    """Compare ours with another method, paired over the seeds."""
    differences = [
        [ours - theirs for ours, theirs in zip(row.each[OURS], row.each[other], strict=True)] for row in rows
    ]
    signs = [Interval.of(values).sign for values in differences]
    lower = sum(row.errors[OURS] < row.errors[other] for row in rows)
    equal = sum(row.errors[OURS] == row.errors[other] for row in rows)
    seeds = min(len(values) for values in differences)
    by_seed = [mean(values[seed] for values in differences) for seed in range(seeds)]
    return Duel(signs.count(-1), signs.count(0), signs.count(1), lower, equal, Interval.of(by_seed))


def reduce_relatively(ours: float, supervised: float) -> float:
    """Return 1 - ours / supervised; where supervised is 0, any error of ours counts as twice as much."""
    return 1 - ours / supervised if supervised else -float(ours > 0)


def find_worst_harm(rows: Iterable[Row]) -> dict[int, Harm]:
    """Return the largest harm and its set, by the number of labels."""
    worst: dict[int, Harm] = {}
    for row in rows:
        known = worst.get(row.labels_per_class)
        if row.harm is not None and (known is None or row.harm > known.points):
            worst[row.labels_per_class] = Harm(row.set, row.harm)
    return dict(sorted(worst.items()))


def summarise(rows: Sequence[Row]) -> Summary:
    """Return the numbers of some rows that need ours; rows without it do not count."""
    rows = [row for row in rows if OURS in row.errors]

    def select(*methods: str) -> list[Row]:
        return [row for row in rows if all(method in row.errors for method in methods)]

    duels = {method: compare(found, method) for method in COLUMNS if method != OURS and (found := select(method))}
    pairs = [(row.errors[OURS], row.errors["supervised"]) for row in select("supervised")]
    supervised = sum(error for _, error in pairs)
    both = select(*SEMI_SUPERVISED)
    leads = [(row.errors[OURS], min(row.errors[method] for method in SEMI_SUPERVISED)) for row in both]
    return Summary(
        cells=len(rows),
        duels=duels,
        relative_reduction=100 * mean(reduce_relatively(*pair) for pair in pairs) if pairs else None,
        reduction_of_mean=100 * reduce_relatively(sum(ours for ours, _ in pairs), supervised) if pairs else None,
        better_than_semi_supervised=100 * mean(ours < best for ours, best in leads) if leads else None,
        no_worse_than_semi_supervised=100 * mean(ours <= best for ours, best in leads) if leads else None,
        worst_harm=find_worst_harm(rows),
    )


def select_reporting(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the sets on which no setting was chosen."""
    return [row for row in rows if row.set in SETS and SETS[row.set].role == "reporting"]
