"""The paper's figures made from finished runs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from afda.data import load
from afda.data.images import DataSet
from afda.errors import UserError
from afda.inference import load_model, outputs
from afda.report import figures
from afda.reproduce import Cell, measured, statistic
from afda.runtime import runtime

UNLABELLED = 5000
"""Unlabelled images in a t-SNE panel, as in the paper."""

COLUMNS = {"figure-1": 2, "figure-4": 4, "figure-6": 5, "figure-7": 4}


def illustrated(name: str, chosen: list[Cell], folder: Path, profile: str, seeds: int, called: str) -> list[Path]:
    """Write a figure from the runs that are finished. t-SNE shows the first seed; captions average over all."""
    check_drawable(name, chosen, folder, profile)
    finished = [cell for cell in chosen if cell.run(folder, profile, 0).finished]
    if name == "figure-2":
        made = figures.labels_figure(by_labels(chosen, folder, profile, seeds))
    elif name == "figure-5":
        run = finished[0].run(folder, profile, 0)
        accuracy = {int(step): 100 - error for step, error in run.result()["test_curve"].items()}
        made = figures.bound_figure(run.log(), accuracy, "test accuracy")
    else:
        sets = {data: load(data) for data in {cell.data for cell in finished}}
        panels = [
            panel(cell, sets[cell.data], folder, profile, seeds) if cell in finished else None
            for cell in ordered(chosen)
        ]
        note = "Labelled images have a black border. Points are of seed 0"
        counts = {len(measured(cell, folder, profile, seeds)["mmd2_x1e3"]) for cell in finished}
        over = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        note += f", error and MMD² are means over {over} seeds." if over != "1" else "."
        made = figures.embeddings_figure(panels, COLUMNS[name], note)
    return figures.save(made, folder / profile / "figures" / called)


def check_drawable(name: str, chosen: list[Cell], folder: Path, profile: str) -> None:
    """Refuse a figure that finished runs lack something for, such as those of a repository without weights."""
    for run in (cell.run(folder, profile, 0) for cell in chosen):
        lacks = ""
        if run.finished and name in COLUMNS and not (run.path / "model.safetensors").exists():
            lacks = "model.safetensors, so its features cannot be drawn"
        elif run.finished and name == "figure-5" and not run.result().get("test_curve"):
            lacks = "test errors from the course of its training, which the figure draws"
        if lacks:
            raise UserError(f"{run.path} has no {lacks}; with another --out the runs are made anew.")


def ordered(chosen: list[Cell]) -> list[Cell]:
    """Without alignment in the first row, with it in the second."""
    return sorted(chosen, key=lambda cell: cell.align != "none")


def by_labels(chosen: list[Cell], folder: Path, profile: str, seeds: int) -> dict[str, Any]:
    series: dict[str, Any] = {}
    for cell in chosen:
        by_seed = measured(cell, folder, profile, seeds).values()
        if all(by_seed):
            series.setdefault(cell.data, {})[cell.labels] = tuple(list(values.values()) for values in by_seed)
    return series


def panel(cell: Cell, data: DataSet, folder: Path, profile: str, seeds: int) -> dict[str, Any]:
    """t-SNE of a run's labelled images and up to 5,000 unlabelled ones."""
    run = cell.run(folder, profile, 0)
    machine = runtime(precision="float32")
    model, _ = load_model(run.path)
    machine.place(model)
    labelled = np.array(run.read_json("split.json")["labelled"])
    others = np.setdiff1d(np.arange(len(data.train)), labelled)
    unlabelled = np.random.default_rng(0).permutation(others)[:UNLABELLED]
    images = data.train[torch.from_numpy(np.concatenate([labelled, unlabelled]))]
    features = outputs(model, images.x, machine).features.numpy()
    of_cell = measured(cell, folder, profile, seeds)
    error, discrepancy = statistic(of_cell["test_error_pct"]), statistic(of_cell["mmd2_x1e3"])
    return {
        "title": f"{cell.method}{'' if cell.align == 'none' else ' + alignment'}, {cell.labels} labels",
        "points": figures.embedding(features),
        "y": images.y.numpy(),
        "labelled": np.arange(len(images)) < len(labelled),
        "caption": f"error {brief(error)} %\nMMD² × 10³ {brief(discrepancy)}",
    }


def brief(value: dict[str, Any] | None) -> str:
    if value is None:
        return "unknown"
    return f"{value['mean']:.1f}" + (f" ± {value['std']:.1f}" if value["std"] is not None else "")
