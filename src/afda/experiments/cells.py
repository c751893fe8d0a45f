"""The paper's tables and figures, each a named list of cells to train."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from afda import recipes
from afda.data.images import DataSet
from afda.errors import UserError, unknown
from afda.recipe import Recipe
from afda.runs.directory import Run

PROFILES = ("paper", "cpu")
METHODS = ("supervised", "pi-model", "mean-teacher", "vat")
SVHN_LABELS, CIFAR_LABELS = (150, 200, 250, 500, 1000), (250, 500, 1000, 2000, 4000)
DIGITS_LABELS = (20, 50, 100)


@dataclass(frozen=True)
class Cell:
    """One operating point: a method with or without alignment, a data set and a number of labels."""

    data: str
    method: str
    align: str
    labels: int
    recipe: str = "ablation"

    def make_recipe(self, data: DataSet, profile: str, seed: int, settings: Sequence[str] = ()) -> Recipe:
        """Return the recipe of one run of this cell."""
        name = f"{self.data}-{self.recipe}"
        if profile == "cpu" and f"{name}-cpu" in recipes.list_recipes():
            name += "-cpu"
        return recipes.recipe(name, data, self.method, self.align, self.labels).with_settings(
            [f"seed={seed}", *settings]
        )

    @property
    def net(self) -> str:
        """The network's name in the paper."""
        if self.recipe == "wide-resnet":
            return "WRN-28-2"
        return "ShakeShake26-2x96d" if (self.data, self.recipe) == ("cifar10", "headline") else "ConvLarge"

    @property
    def options(self) -> tuple[str, ...]:
        """Further options of `afda train`.

        figure-5 draws the test error over a training of AFDA, so every such run keeps snapshots, whichever table or
        figure starts it.
        """
        return ("--snapshots",) if (self.method, self.align) == ("vat+entropy", "adversarial") else ()

    def path(self, profile: str, seed: int) -> str:
        """The run's directory below the folder of the sweep, such as cpu/svhn-ablation/vat-adversarial-250-seed0."""
        title = self.method if self.align == "none" else f"{self.method}-{self.align}"
        return f"{profile}/{self.data}-{self.recipe}/{title}-{self.labels}-seed{seed}"

    def run(self, folder: Path, profile: str, seed: int) -> Run:
        """Return the run of this cell in a folder, finished or not."""
        return Run(folder / self.path(profile, seed))


class Experiment(NamedTuple):
    """A table or figure."""

    title: str
    cells: list[Cell]


def pair_cells(
    data: str, labels: tuple[int, ...], methods: tuple[str, ...] = METHODS, recipe: str = "ablation"
) -> list[Cell]:
    """Return each method without and with alignment, at each number of labels."""
    return [Cell(data, m, a, n, recipe) for n in labels for m in methods for a in ("none", "adversarial")]


EXPERIMENTS: dict[str, Experiment] = {
    "table-1": Experiment(
        "SVHN against the literature",
        [Cell("svhn", "supervised", "none", n) for n in (250, 1000)]
        + [Cell("svhn", "vat+entropy", a, n, "headline") for n in (250, 1000) for a in ("none", "adversarial")],
    ),
    "table-2": Experiment(
        "CIFAR-10 against the literature, Shake-Shake",
        [Cell("cifar10", "supervised", "none", n, "headline") for n in (1000, 4000)]
        + [Cell("cifar10", "mean-teacher", a, n, "headline") for n in (1000, 4000) for a in ("none", "adversarial")],
    ),
    "table-3": Experiment(
        "Summary of the improvements", pair_cells("svhn", (150, 200, 1000)) + pair_cells("cifar10", (250, 500, 4000))
    ),
    "table-4": Experiment(
        "MMD² of the features", pair_cells("svhn", (200, 500, 1000)) + pair_cells("cifar10", (250, 1000, 4000))
    ),
    "table-5": Experiment("All operating points on SVHN", pair_cells("svhn", SVHN_LABELS)),
    "table-6": Experiment("All operating points on CIFAR-10", pair_cells("cifar10", CIFAR_LABELS)),
    "table-7": Experiment("WRN-28-2 on SVHN", pair_cells("svhn", SVHN_LABELS, ("supervised", "vat"), "wide-resnet")),
    "figure-1": Experiment(
        "t-SNE of a classical and an aligned feature space",
        [Cell("svhn", "supervised", "none", 250), Cell("svhn", "vat+entropy", "adversarial", 250, "headline")],
    ),
    "figure-2": Experiment(
        "Test error and MMD² against the number of labels",
        [Cell("svhn", "supervised", "none", n) for n in SVHN_LABELS]
        + [Cell("cifar10", "supervised", "none", n) for n in CIFAR_LABELS],
    ),
    "figure-4": Experiment("t-SNE by loss", pair_cells("svhn", (200,), ("supervised", "vat"))),
    "figure-5": Experiment(
        "The bound's four terms and the test accuracy over training",
        [Cell("svhn", "vat+entropy", "adversarial", 250, "headline")],
    ),
    "figure-6": Experiment("t-SNE by number of labels", [Cell("svhn", "supervised", "none", n) for n in SVHN_LABELS]),
    "figure-7": Experiment("t-SNE by method", pair_cells("svhn", (200,))),
    "digits": Experiment(
        "The same comparison on the embedded digits, not in the paper",
        pair_cells("digits", DIGITS_LABELS, recipe="demo"),
    ),
}


def select_cells(name: str, only: str = "", labels: int | None = None, on_digits: bool = False) -> list[Cell]:
    """Return the cells of a table or figure that agree with `only`, such as method=vat,labels=250,labels=500.

    `labels` replaces the paper's number of labels. `on_digits` replaces its data by the embedded digits: with 50 labels
    where the paper has one number, else with 20, 50 and 100.
    """
    if name not in EXPERIMENTS:
        raise unknown("table or figure", name, EXPERIMENTS)
    chosen = EXPERIMENTS[name].cells
    if on_digits:
        counts = DIGITS_LABELS if len({cell.labels for cell in chosen}) > 1 else (50,)
        chosen = [Cell("digits", cell.method, cell.align, count, "demo") for count in counts for cell in chosen]
    if labels is not None:
        chosen = [replace(cell, labels=labels) for cell in chosen]
    return filter_cells(name, list(dict.fromkeys(chosen)), only)


def filter_cells(name: str, chosen: list[Cell], only: str) -> list[Cell]:
    """Return the cells that meet the conditions; several values of one field are alternatives."""
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
            rest = "" if len(wanted) == 1 else " with the other conditions"
            raise UserError(
                f"--only {only}: {name} has no {key}={absent[0]}{rest}; {key} can be {', '.join(known)} there."
            )
        chosen = [cell for cell in chosen if str(getattr(cell, key)) in values]
    return chosen


def make_file_name(name: str, only: str = "", labels: int | None = None, on_digits: bool = False) -> str:
    """Return the name of the table's files. A part of a table, or one with other data, has files of its own."""
    others = ["on-digits" if on_digits else "", f"with-{labels}-labels" if labels else ""]
    parts = [name, *others, *sorted(only.split(","))]
    return "-".join(filter(None, parts)).replace("=", "-").replace(os.sep, "-")
