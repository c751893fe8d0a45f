"""The paper's tables and figures, each as a named list of cells to run, and ours beside the paper's."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from afda import paper, recipes
from afda.data import load
from afda.data.images import DataSet
from afda.disk import check_writable, write_whole
from afda.errors import UserError, unknown
from afda.recipe import Recipe
from afda.report import tables
from afda.runs import Run, changes
from afda.sweep import Job

PROFILES = ("paper", "cpu")
METHODS = ("supervised", "pi-model", "mean-teacher", "vat")
SVHN_LABELS, CIFAR_LABELS = (150, 200, 250, 500, 1000), (250, 500, 1000, 2000, 4000)
DIGITS_LABELS = (20, 50, 100)


@dataclass(frozen=True)
class Cell:
    """One operating point: what is trained, on which data, with how many labels."""

    data: str
    method: str
    align: str
    labels: int
    recipe: str = "ablation"

    def made(self, data: DataSet, profile: str, seed: int, settings: Sequence[str] = ()) -> Recipe:
        name = f"{self.data}-{self.recipe}"
        if profile == "cpu" and f"{name}-cpu" in recipes.shelf():
            name += "-cpu"
        return recipes.recipe(name, data, self.method, self.align, self.labels).with_settings(
            [f"seed={seed}", *settings]
        )

    @property
    def net(self) -> str:
        """What the paper calls the net."""
        if self.recipe == "wide-resnet":
            return "WRN-28-2"
        return "ShakeShake26-2x96d" if (self.data, self.recipe) == ("cifar10", "headline") else "ConvLarge"

    @property
    def options(self) -> tuple[str, ...]:
        """More of the command line of `afda train`. figure-5 draws the test error over a training of AFDA, so every
        such run keeps snapshots, whichever table or figure begins it."""
        return ("--snapshots",) if (self.method, self.align) == ("vat+entropy", "adversarial") else ()

    def run(self, folder: Path, profile: str, seed: int) -> Run:
        title = self.method if self.align == "none" else f"{self.method}-{self.align}"
        return Run(folder / profile / f"{self.data}-{self.recipe}" / f"{title}-{self.labels}-seed{seed}")


def pairs(
    data: str, labels: tuple[int, ...], methods: tuple[str, ...] = METHODS, recipe: str = "ablation"
) -> list[Cell]:
    """Each method without and with alignment, at each number of labels."""
    return [Cell(data, m, a, n, recipe) for n in labels for m in methods for a in ("none", "adversarial")]


EXPERIMENTS: dict[str, tuple[str, list[Cell]]] = {
    "table-1": (
        "SVHN against the literature",
        [Cell("svhn", "supervised", "none", n) for n in (250, 1000)]
        + [Cell("svhn", "vat+entropy", a, n, "headline") for n in (250, 1000) for a in ("none", "adversarial")],
    ),
    "table-2": (
        "CIFAR-10 against the literature, Shake-Shake",
        [Cell("cifar10", "supervised", "none", n, "headline") for n in (1000, 4000)]
        + [Cell("cifar10", "mean-teacher", a, n, "headline") for n in (1000, 4000) for a in ("none", "adversarial")],
    ),
    "table-3": ("Summary of the improvements", pairs("svhn", (150, 200, 1000)) + pairs("cifar10", (250, 500, 4000))),
    "table-4": ("MMD² of the features", pairs("svhn", (200, 500, 1000)) + pairs("cifar10", (250, 1000, 4000))),
    "table-5": ("All operating points on SVHN", pairs("svhn", SVHN_LABELS)),
    "table-6": ("All operating points on CIFAR-10", pairs("cifar10", CIFAR_LABELS)),
    "table-7": ("WRN-28-2 on SVHN", pairs("svhn", SVHN_LABELS, ("supervised", "vat"), "wide-resnet")),
    "figure-1": (
        "t-SNE of a classical and an aligned feature space",
        [Cell("svhn", "supervised", "none", 250), Cell("svhn", "vat+entropy", "adversarial", 250, "headline")],
    ),
    "figure-2": (
        "Test error and MMD² against the number of labels",
        [Cell("svhn", "supervised", "none", n) for n in SVHN_LABELS]
        + [Cell("cifar10", "supervised", "none", n) for n in CIFAR_LABELS],
    ),
    "figure-4": ("t-SNE by loss", pairs("svhn", (200,), ("supervised", "vat"))),
    "figure-5": (
        "The bound's four terms and the test accuracy over training",
        [Cell("svhn", "vat+entropy", "adversarial", 250, "headline")],
    ),
    "figure-6": ("t-SNE by number of labels", [Cell("svhn", "supervised", "none", n) for n in SVHN_LABELS]),
    "figure-7": ("t-SNE by method", pairs("svhn", (200,))),
    "digits": (
        "The same comparison on the embedded digits, not in the paper",
        pairs("digits", DIGITS_LABELS, recipe="demo"),
    ),
}


def cells(name: str, only: str = "", labels: int | None = None, on_digits: bool = False) -> list[Cell]:
    """The cells of a table or figure that agree with `only`, such as method=vat,labels=250,labels=500.

    `labels` is put in place of the paper's number of labels, and the embedded digits in place of its data: 50 labels
    of them where the paper has one number, else 20, 50 and 100.
    """
    if name not in EXPERIMENTS:
        raise unknown("table or figure", name, EXPERIMENTS)
    chosen = EXPERIMENTS[name][1]
    if on_digits:
        counts = DIGITS_LABELS if len({cell.labels for cell in chosen}) > 1 else (50,)
        chosen = [Cell("digits", cell.method, cell.align, count, "demo") for count in counts for cell in chosen]
    if labels is not None:
        chosen = [replace(cell, labels=labels) for cell in chosen]
    chosen = list(dict.fromkeys(chosen))
    wanted: dict[str, list[str]] = {}
    for condition in filter(None, only.split(",")):
        key, equals, value = condition.partition("=")
        if not equals or key not in Cell.__dataclass_fields__:
            keys = ", ".join(Cell.__dataclass_fields__)
            raise UserError(f"--only takes conditions such as method=vat,labels=250 on {keys}, not {condition!r}.")
        wanted.setdefault(key, []).append(value)
    for key, values in wanted.items():
        known = dict.fromkeys(str(getattr(cell, key)) for cell in chosen)
        if absent := [value for value in values if value not in known]:
            rest = "" if len(wanted) == 1 else " beside the other conditions"
            raise UserError(
                f"--only {only} asks {name} for {key}={absent[0]}; {key} can be {', '.join(known)} there{rest}."
            )
        chosen = [cell for cell in chosen if str(getattr(cell, key)) in values]
    return chosen


def file_name(name: str, only: str = "", labels: int | None = None, on_digits: bool = False) -> str:
    """A part of a table, or one with other data, has files of its own beside the whole one's."""
    others = ["on-digits" if on_digits else "", f"with-{labels}-labels" if labels else ""]
    parts = [name, *others, *sorted(only.split(","))]
    return "-".join(filter(None, parts)).replace("=", "-").replace(os.sep, "-")


def planned(
    name: str, chosen: list[Cell], folder: Path, profile: str, seeds: int, settings: Sequence[str] = ()
) -> list[Job]:
    """A job per cell and seed, all cells of the first seed first: a table that is cut off is thin, not lopsided."""
    for setting in settings:
        if (path := setting.partition("=")[0].strip()) in ("seed", *Cell.__dataclass_fields__):
            raise UserError(f"Each cell of {name} has its own {path}, which --set cannot change.")
    sets = {data: load(data) for data in sorted({cell.data for cell in chosen})}
    todo = []
    for seed in range(seeds):
        for cell in chosen:
            todo.append((cell, cell.made(sets[cell.data], profile, seed, settings)))
            todo[-1][1].split_of(sets[cell.data])  # labels that there are not are refused before anything begins
    return [Job(made, cell.run(folder, profile, made.seed), cell.data, cell.options) for cell, made in todo]


def statistic(by_seed: dict[int, float]) -> dict[str, Any] | None:
    """Mean, sample standard deviation and number of runs."""
    values = list(by_seed.values())
    if not values:
        return None
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None, "n": len(values)}


def measured(cell: Cell, folder: Path, profile: str, seeds: int) -> dict[str, dict[int, float]]:
    """What the finished runs of a cell gave, by seed: the test error in percent and MMD^2 times 1000."""
    runs = {seed: cell.run(folder, profile, seed) for seed in range(seeds)}
    finished = {seed: run.result() for seed, run in runs.items() if run.finished}
    return {
        "test_error_pct": {seed: r["test_error"] for seed, r in finished.items() if r["test_error"] is not None},
        "mmd2_x1e3": {seed: 1000 * r["mmd2"] for seed, r in finished.items() if r["mmd2"] is not None},
    }


def table(name: str, chosen: list[Cell], folder: Path, profile: str, seeds: int) -> list[dict[str, Any]]:
    """A row per operating point, method and measure: ours and the paper's, plain and aligned, and both gains.

    A gain of ours is the mean over the seeds that both ways have: they share their labelled images. Cells that were not
    chosen or not run are None.
    """
    code = paper.TABLES.get(name, "")
    points = dict.fromkeys((cell.data, cell.recipe, cell.labels, cell.method) for cell in chosen)
    rows: list[dict[str, Any]] = []
    for data, recipe, labels, method in points:
        pair = [Cell(data, method, align, labels, recipe) for align in ("none", "adversarial")]
        ours = [measured(cell, folder, profile, seeds if cell in chosen else 0) for cell in pair]
        for metric in ("test_error_pct", "mmd2_x1e3"):
            theirs = [
                paper.printed(data, cell.net, method, cell.align != "none", labels, metric, code)
                if cell in chosen
                else None
                for cell in pair
            ]
            plain, aligned = (of_cell[metric] for of_cell in ours)
            common = [seed for seed in plain if seed in aligned]
            gains = [plain[seed] - aligned[seed] for seed in common]
            rows.append(
                {
                    "profile": profile,
                    "data": data,
                    "recipe": recipe,
                    "labels": labels,
                    "method": method,
                    "measure": metric,
                    "plain": statistic(plain),
                    "aligned": statistic(aligned),
                    "gain": mean(gains) if gains else None,
                    "pairs": len(gains),
                    "pairs_lower": sum(gain > 0 for gain in gains),
                    "pairs_equal": sum(gain == 0 for gain in gains),
                    "paper_plain": theirs[0] and {"mean": theirs[0].mean, "std": theirs[0].std},
                    "paper_aligned": theirs[1] and {"mean": theirs[1].mean, "std": theirs[1].std},
                    "paper_gain": paper_gain(*theirs),
                }
            )
            both = rows[-1]["gain"], rows[-1]["paper_gain"]
            rows[-1]["signs_agree"] = (both[0] > 0) == (both[1] > 0) if all(both) else None
            runs = [cell.run(folder, profile, seed) for cell in pair for seed in common[:1]]
            rows[-1]["also_differ"] = unlike(*(run.recipe() for run in runs)) if runs else []
    return rows + (literature(name, chosen, rows[0]) if code in paper.OURS else [])


def literature(name: str, chosen: list[Cell], row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row like this one, with the paper's number alone, for each that its table quotes of methods we do not run."""
    ours = {(cell.data, cell.labels, cell.method) for cell in EXPERIMENTS[name][1]}
    shown = {(cell.data, cell.labels) for cell in chosen}
    quoted = [n for n in paper.numbers() if n.table == paper.TABLES[name] and (n.data, n.labels) in shown]
    return [
        {
            **dict.fromkeys(row),
            **{"data": n.data, "labels": n.labels, "method": f"{n.name}, {n.net}", "measure": n.metric},
            **{"pairs": 0, "pairs_lower": 0, "pairs_equal": 0, "also_differ": []},
            "paper_plain": {"mean": n.mean, "std": n.std},
        }
        for n in quoted
        if (n.data, n.labels, n.method) not in ours
    ]


def unlike(plain: Recipe, aligned: Recipe) -> list[str]:
    """The settings besides the alignment in which the two runs of a pair differ."""
    found = changes(plain.model_dump(), aligned.model_copy(update={"align": None}).model_dump())
    return [change.partition(":")[0] for change in found]


def remarks(name: str, rows: list[dict[str, Any]], profile: str, todo: list[Job], settings: Sequence[str] = ()) -> str:
    """What must be known of a table to read it."""
    digits = {row["data"] for row in rows} == {"digits"}
    in_place = digits and name != "digits"
    text = f"As {name} ({EXPERIMENTS[name][0]}), but on the embedded digits" if in_place else EXPERIMENTS[name][0]
    how = [*settings] if digits else [f"{profile} profile", *settings]  # the digits have one way only
    text = ", ".join([text, *how]) + ": mean ± sample standard deviation (number of runs)."
    done = sum(job.state == "done" for job in todo)
    if done < len(todo):
        text += f" Unfinished: {done} of {len(todo)} runs."
    precisions = {job.precision for job in todo if job.state == "done"} - {None}
    if len(precisions) > 1:
        text += " Not all runs are in one precision: some are in bfloat16, some in float32."
    elif "bfloat16" in precisions:
        text += " In bfloat16."
    if any(row["pairs"] for row in rows):
        text += " Gain and lower in: of the seeds that both have, which share their labelled images."
    differing = {(row["method"], row["data"]): row["also_differ"] for row in rows if row["also_differ"]}
    for (method, data), paths in differing.items():
        text += (
            f" Besides the alignment, plain and aligned {method} on {data} differ in the recipe's {', '.join(paths)}."
        )
    reduced = {name_of(row) for row in rows if row["paper_gain"] is not None}
    shown = {name_of(row) for row in rows if row["paper_plain"] is not None}
    for wrong in paper.misprints():
        cell = (wrong.data, wrong.method, wrong.labels, wrong.metric)
        if cell in shown if wrong.metric == "mmd2_x1e3" else wrong.table == name and cell in reduced:
            text += f" A misprint of the paper: {wrong}"
    return text + (" Shortened runs of narrow nets; the paper's are full." if profile == "cpu" and not digits else "")


def name_of(row: dict[str, Any]) -> tuple[str, str, int, str]:
    """What a row of a table is about."""
    return row["data"], row["method"], row["labels"], row["measure"]


def written(
    rows: list[dict[str, Any]], place: Path, called: str, about: str, command: str, figure: Path | None = None
) -> list[Path]:
    """Write the table as Markdown, CSV, LaTeX and a page that shows the figure too, with the command that made it."""
    picture = tables.image(figure.read_bytes(), called) if figure is not None and figure.exists() else ""
    texts = {
        "md": f"# {called}\n\n{about} Made by `{command}`.\n\n{tables.markdown(rows)}",
        "csv": tables.as_csv(rows),
        "tex": f"% {about} Made by: {command}\n{tables.latex(rows)}",
        "html": tables.page(called, f"{about} Made by: {command}", tables.lines(rows), picture),
    }
    check_writable(place)
    for ending, text in texts.items():
        write_whole(place / f"{called}.{ending}", text.encode())
    return [place / f"{called}.{ending}" for ending in texts]


def paper_gain(plain: paper.Number | None, aligned: paper.Number | None) -> float | None:
    """How much alignment lowers a measure by the paper's means, if both are of its own runs."""
    if plain is None or aligned is None or plain.quoted:
        return None
    return plain.mean - aligned.mean
