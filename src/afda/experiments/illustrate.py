"""Draw the paper's figures from finished runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from afda.data import load
from afda.data.images import DataSet
from afda.errors import UserError
from afda.experiments import figures
from afda.experiments.cells import Cell
from afda.experiments.comparison import RunStore, Statistic, measure_cell, summarise
from afda.experiments.evidence import RunRecord
from afda.machine.runtime import select_runtime
from afda.report.embedding import embed_features
from afda.runs.directory import Run
from afda.runs.model import compute_outputs, load_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNLABELLED = 5000
"""Unlabelled images in a t-SNE panel, as in the paper."""

COLUMNS = {"figure-1": 2, "figure-4": 4, "figure-6": 5, "figure-7": 4}
"""The t-SNE figures and their number of columns."""


def draw_figure(name: str, chosen: Sequence[Cell], store: RunStore, profile: str, seeds: int, path: Path) -> list[Path]:
    """Write a figure of the finished runs. t-SNE shows the first seed; captions average over all."""
    check_drawable(name, chosen, store, profile)
    if name == "figure-2":
        figure = figures.draw_labels(collect_series(chosen, store, profile, seeds))
    elif name == "figure-5":
        record = next(found for cell in chosen if (found := store.find(cell, profile, 0)))
        accuracy = {int(step): 100 - error for step, error in (record.result.test_curve or {}).items()}
        figure = figures.draw_bound(open_directory(record).log.read(), accuracy, "test accuracy")
    else:
        figure = draw_embeddings(name, chosen, store, profile, seeds)
    return figures.save_figure(figure, path)


def check_drawable(name: str, chosen: Sequence[Cell], store: RunStore, profile: str) -> None:
    """Refuse a figure if a finished run lacks what it draws, such as the weights."""
    for record in (found for cell in chosen if (found := store.find(cell, profile, 0))):
        if lacking := find_lacking(name, record):
            where = record.folder or f"The reused run {record.path}"
            reused = any(record is other for other in store.reused.values())
            rest = "leave out --reuse" if reused else "give another --out"
            raise UserError(f"{where} has no {lacking}; to train the run again, {rest}.")


def find_lacking(name: str, record: RunRecord) -> str:
    """Return what a run lacks to be drawn in a figure, or an empty string."""
    if name in COLUMNS and (record.folder is None or not (record.folder / "model.safetensors").exists()):
        return "model.safetensors, so its features cannot be drawn"
    if name == "figure-5" and not record.result.test_curve:
        return "test errors during training, which the figure draws"
    if name == "figure-5" and record.folder is None:
        return "log.jsonl, whose bound the figure draws"
    return ""


def open_directory(record: RunRecord) -> Run:
    """Return the directory of a run that `find_lacking` has found complete."""
    if record.folder is None:
        raise UserError(f"The reused run {record.path} has no directory; leave out --reuse.")
    return Run(record.folder)


def sort_by_alignment(chosen: Sequence[Cell]) -> list[Cell]:
    """Return the cells without alignment first, for the first row of a figure."""
    return sorted(chosen, key=lambda cell: cell.align != "none")


def collect_series(chosen: Sequence[Cell], store: RunStore, profile: str, seeds: int) -> figures.Series:
    """Return the test errors and MMD^2 of all seeds by data set and number of labels."""
    series: figures.Series = {}
    for cell in chosen:
        measured = measure_cell(cell, store, profile, seeds)
        if all(measured):
            errors, discrepancies = (list(by_seed.values()) for by_seed in measured)
            series.setdefault(cell.data, {})[cell.labels] = (errors, discrepancies)
    return series


def draw_embeddings(name: str, chosen: Sequence[Cell], store: RunStore, profile: str, seeds: int) -> "Figure":
    """Draw a t-SNE panel per cell; the place of a cell without a run stays empty."""
    found = {cell: store.find(cell, profile, 0) for cell in chosen}
    sets = {data: load(data) for data in {cell.data for cell, record in found.items() if record}}
    panels = [
        build_panel(cell, record, sets[cell.data], store, profile, seeds) if (record := found[cell]) else None
        for cell in sort_by_alignment(chosen)
    ]
    note = "Labelled images have a black border. Points are of seed 0"
    counts = {len(measure_cell(c, store, profile, seeds).mmd2_x1e3) for c, record in found.items() if record}
    over = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    note += f", error and MMD² are means over {over} seeds." if over != "1" else "."
    return figures.draw_panels(panels, COLUMNS[name], note)


def build_panel(
    cell: Cell, record: RunRecord, data: DataSet, store: RunStore, profile: str, seeds: int
) -> figures.Panel:
    """Return the t-SNE panel of a run: its labelled images and up to 5,000 unlabelled ones."""
    run, machine = open_directory(record), select_runtime(precision="float32")
    model, _ = load_model(run.path)
    machine.place(model)
    labelled = np.array(run.read_split().labelled)
    others = np.setdiff1d(np.arange(len(data.train)), labelled)
    unlabelled = np.random.default_rng(0).permutation(others)[:UNLABELLED]
    images = data.train[torch.from_numpy(np.concatenate([labelled, unlabelled]))]
    features = compute_outputs(model, images.x, machine).features.numpy()
    measured = measure_cell(cell, store, profile, seeds)
    error, discrepancy = summarise(measured.test_error_pct), summarise(measured.mmd2_x1e3)
    return figures.Panel(
        title=f"{cell.method}{'' if cell.align == 'none' else ' + alignment'}, {cell.labels} labels",
        points=embed_features(features),
        y=images.y.numpy(),
        labelled=np.arange(len(images)) < len(labelled),
        caption=f"error {format_brief(error)} %\nMMD² × 10³ {format_brief(discrepancy)}",
    )


def format_brief(value: Statistic | None) -> str:
    if value is None:
        return "unknown"
    return f"{value.mean:.1f}" + (f" ± {value.std:.1f}" if value.std is not None else "")
