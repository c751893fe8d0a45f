"""The cells that `afda bench quality` is asked for."""

from dataclasses import dataclass

from afda.errors import UserError, unknown
from afda.experiments.quality.cells import Cell
from afda.experiments.quality.competitors import COLUMNS
from afda.experiments.quality.sets import TUNING_SEED, select_sets

MOST_LABELS = 20
"""Labels per class that every set has."""


@dataclass(frozen=True)
class Plan:
    """The cells to run, set by set, and notes on sets that are left out."""

    cells: list[Cell]
    notes: list[str]


def plan_cells(sets: str = "", labels: str = "2,5,20", seeds: int = 5, methods: str = "", tuning: bool = False) -> Plan:
    """Return the cells of some sets, numbers of labels, seeds and methods, each a list with commas; empty is all.

    Tuning uses the sets for tuning only, and seeds from 100 instead of from 0.
    """
    absences = {one.name: one.find_absence() for one in select_sets(sets, tuning)}
    notes = [f"{name} is left out, as its files are absent; {why}." for name, why in absences.items() if why]
    chosen = [name for name, why in absences.items() if not why]
    if not chosen:
        raise UserError(f"None of the sets can be run: {notes[0].rstrip('.')}.")
    first = TUNING_SEED if tuning else 0
    counts, columns = parse_labels(labels), parse_methods(methods)
    cells = [
        Cell(name, count, seed, method)
        for name in chosen
        for count in counts
        for seed in range(first, first + seeds)
        for method in columns
    ]
    return Plan(cells, notes)


def parse_labels(text: str) -> list[int]:
    """Return the numbers of labels per class in a list with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MOST_LABELS for part in parts):
        raise UserError(f"--labels is {text!r}; give numbers from 1 to {MOST_LABELS}, such as 2,5,20.")
    return sorted({int(part) for part in parts})


def parse_methods(text: str) -> list[str]:
    """Return the columns in a list with commas, or all of them."""
    parts = [part.strip() for part in text.split(",")] if text else list(COLUMNS)
    for part in parts:
        if part not in COLUMNS:
            raise unknown("column of the quality suite", part, COLUMNS)
    return [method for method in COLUMNS if method in parts]
