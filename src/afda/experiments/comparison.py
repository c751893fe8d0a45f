"""The rows of a reproduced table: our runs beside the paper's numbers, without and with alignment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from afda.experiments import paper
from afda.experiments.cells import EXPERIMENTS, Cell
from afda.experiments.evidence import RunRecord, read_record
from afda.recipe import Recipe
from afda.runs.directory import Run, find_differences

METRICS = ("test_error_pct", "mmd2_x1e3")


@dataclass(frozen=True)
class Statistic:
    """Mean, sample standard deviation and number of our runs."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class PaperValue:
    """Mean and standard deviation as printed in the paper."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Row:
    """One operating point, method and measure. Values of cells that were not chosen or not run are None.

    A gain is positive where alignment lowers the measure. Ours is the mean over the seeds that both variants have,
    since the runs of a seed share their labelled images.
    """

    profile: str | None
    data: str
    recipe: str | None
    labels: int
    method: str
    measure: str
    plain: Statistic | None = None
    aligned: Statistic | None = None
    gain: float | None = None
    pairs: int = 0
    pairs_lower: int = 0
    pairs_equal: int = 0
    paper_plain: PaperValue | None = None
    paper_aligned: PaperValue | None = None
    paper_gain: float | None = None
    signs_agree: bool | None = None
    also_differ: list[str] = field(default_factory=list)
    """The recipe's fields, besides the alignment, in which plain and aligned runs differ."""

    @property
    def identity(self) -> tuple[str, str, int, str]:
        return self.data, self.method, self.labels, self.measure


@dataclass(frozen=True)
class RunStore:
    """The finished runs of a sweep: those in the user's folder and, where it has none, those that are reused."""

    folder: Path | None
    reused: Mapping[str, RunRecord] = field(default_factory=dict)

    def find(self, cell: Cell, profile: str, seed: int) -> RunRecord | None:
        """Return the finished run of a cell, or None."""
        path = cell.path(profile, seed)
        if self.folder is not None and Run(self.folder / path).finished:
            return read_record(self.folder, path)
        return self.reused.get(path)


class Measured(NamedTuple):
    """The measures of a cell's finished runs by seed: test errors in percent and MMD^2 times 1000."""

    test_error_pct: dict[int, float]
    mmd2_x1e3: dict[int, float]

    def of(self, metric: str) -> dict[int, float]:
        return self.test_error_pct if metric == "test_error_pct" else self.mmd2_x1e3


def measure_cell(cell: Cell, store: RunStore, profile: str, seeds: int) -> Measured:
    """Read the measures of a cell's finished runs."""
    found = {seed: store.find(cell, profile, seed) for seed in range(seeds)}
    results = {seed: record.result for seed, record in found.items() if record is not None}
    return Measured(
        {seed: result.test_error for seed, result in results.items() if result.test_error is not None},
        {seed: 1000 * result.mmd2 for seed, result in results.items() if result.mmd2 is not None},
    )


def summarise(by_seed: Mapping[int, float]) -> Statistic | None:
    """Return the statistic of some runs, or None if there are none."""
    values = list(by_seed.values())
    return Statistic(mean(values), stdev(values) if len(values) > 1 else None, len(values)) if values else None


def build_rows(name: str, chosen: Sequence[Cell], store: RunStore, profile: str, seeds: int) -> list[Row]:
    """Return a row per operating point, method and measure, and below them the literature that a table quotes."""
    points = dict.fromkeys((cell.data, cell.recipe, cell.labels, cell.method) for cell in chosen)
    rows: list[Row] = []
    for data, recipe, labels, method in points:
        plain, aligned = (Cell(data, method, align, labels, recipe) for align in ("none", "adversarial"))
        rows += compare_pair(name, (plain, aligned), chosen, store, profile, seeds)
    return rows + (quote_literature(name, chosen) if paper.TABLES.get(name) in paper.OURS else [])


def compare_pair(
    name: str, pair: tuple[Cell, Cell], chosen: Sequence[Cell], store: RunStore, profile: str, seeds: int
) -> list[Row]:
    """Return the rows of one method without and with alignment, one per measure. Cells not chosen stay empty."""
    ours = [measure_cell(cell, store, profile, seeds if cell in chosen else 0) for cell in pair]
    cell, rows = pair[0], []
    for metric in METRICS:
        theirs = [find_paper_number(name, cell, metric) if cell in chosen else None for cell in pair]
        plain, aligned = (measured.of(metric) for measured in ours)
        common = [seed for seed in plain if seed in aligned]
        gains = [plain[seed] - aligned[seed] for seed in common]
        gain, paper_gain = mean(gains) if gains else None, subtract_paper_means(*theirs)
        rows.append(
            Row(
                profile,
                cell.data,
                cell.recipe,
                cell.labels,
                cell.method,
                metric,
                plain=summarise(plain),
                aligned=summarise(aligned),
                gain=gain,
                pairs=len(gains),
                pairs_lower=sum(difference > 0 for difference in gains),
                pairs_equal=sum(difference == 0 for difference in gains),
                paper_plain=PaperValue(theirs[0].mean, theirs[0].std) if theirs[0] else None,
                paper_aligned=PaperValue(theirs[1].mean, theirs[1].std) if theirs[1] else None,
                paper_gain=paper_gain,
                signs_agree=(gain > 0) == (paper_gain > 0) if gain and paper_gain else None,
                also_differ=compare_recipes(pair, store, profile, common[0]) if common else [],
            )
        )
    return rows


def find_paper_number(name: str, cell: Cell, metric: str) -> paper.Number | None:
    """Return what the paper prints for a cell, in this table if it does so there."""
    aligned = cell.align != "none"
    return paper.find_number(cell.data, cell.net, cell.method, aligned, cell.labels, metric, paper.TABLES.get(name, ""))


def subtract_paper_means(plain: paper.Number | None, aligned: paper.Number | None) -> float | None:
    """Return how much alignment lowers a measure by the paper's means, if both are of its own runs."""
    if plain is None or aligned is None or plain.quoted:
        return None
    return plain.mean - aligned.mean


def compare_recipes(pair: tuple[Cell, Cell], store: RunStore, profile: str, seed: int) -> list[str]:
    """Return the recipe's fields, besides the alignment, in which the two runs of a pair differ."""
    plain, aligned = (store.find(cell, profile, seed) for cell in pair)
    return list_differences(plain.recipe, aligned.recipe) if plain and aligned else []


def list_differences(plain: Recipe, aligned: Recipe) -> list[str]:
    found = find_differences(plain.model_dump(), aligned.model_copy(update={"align": None}).model_dump())
    return [change.partition(":")[0] for change in found]


def quote_literature(name: str, chosen: Iterable[Cell]) -> list[Row]:
    """Return a row with the paper's number alone for each that its table quotes of methods we do not run."""
    ours = {(cell.data, cell.labels, cell.method) for cell in EXPERIMENTS[name].cells}
    shown = {(cell.data, cell.labels) for cell in chosen}
    quoted = [n for n in paper.load_numbers() if n.table == paper.TABLES[name] and (n.data, n.labels) in shown]
    return [
        Row(None, n.data, None, n.labels, f"{n.name}, {n.net}", n.metric, paper_plain=PaperValue(n.mean, n.std))
        for n in quoted
        if (n.data, n.labels, n.method) not in ours
    ]


def describe_rows(
    name: str, rows: Sequence[Row], profile: str, settings: Sequence[str] = (), status: Iterable[str] = ()
) -> str:
    """Return the text above a table: its content, the state of its runs, and what to know when reading it."""
    digits = {row.data for row in rows} == {"digits"}
    in_place = digits and name != "digits"
    title = EXPERIMENTS[name].title
    text = f"As {name} ({title}), but on the embedded digits" if in_place else title
    how = [*settings] if digits else [f"{profile} profile", *settings]  # the digits have one profile only
    text = ", ".join([text, *how]) + ": mean ± sample standard deviation (number of runs)."
    text = " ".join([text, *status])
    if any(row.pairs for row in rows):
        text += (
            " Gains are means over the seeds that both variants have; the runs of a seed share their labelled images."
        )
    differing = {(row.method, row.data): row.also_differ for row in rows if row.also_differ}
    for (method, data), paths in differing.items():
        text += (
            f" Besides the alignment, plain and aligned {method} on {data} differ in the recipe's {', '.join(paths)}."
        )
    text += "".join(f" A misprint of the paper: {misprint}" for misprint in find_misprints(name, rows))
    short = profile == "cpu" and not digits
    return text + (" Our runs are short and their networks narrow; the paper's are full-sized." if short else "")


def find_misprints(name: str, rows: Iterable[Row]) -> list[paper.Misprint]:
    """Return the paper's misprints among the numbers that the rows show."""
    reduced = {row.identity for row in rows if row.paper_gain is not None}
    shown = {row.identity for row in rows if row.paper_plain is not None}
    found = []
    for misprint in paper.list_misprints():
        cell = (misprint.data, misprint.method, misprint.labels, misprint.metric)
        if cell in shown if misprint.metric == "mmd2_x1e3" else misprint.table == name and cell in reduced:
            found.append(misprint)
    return found


def describe_precisions(precisions: Iterable[str | None]) -> str:
    """Return a sentence on the precision of finished runs, unless all are in float32 or it is unknown."""
    known = set(precisions) - {None}
    if len(known) > 1:
        return "Not all runs are in one precision: some are in bfloat16, some in float32."
    return "In bfloat16." if "bfloat16" in known else ""
