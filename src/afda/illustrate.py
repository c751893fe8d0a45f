"""The paper's figures made from finished runs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from afda.data import load
from afda.errors import UserError
from afda.inference import load_model, outputs
from afda.report import figures
from afda.reproduce import Cell, measured
from afda.runtime import runtime

UNLABELLED = 5000
"""Unlabelled images in a t-SNE panel, as in the paper."""

COLUMNS = {"figure-1": 2, "figure-4": 4, "figure-6": 5, "figure-7": 4}


def illustrated(name: str, chosen: list[Cell], folder: Path, profile: str, seeds: int) -> list[Path]:
    """Write a figure from the runs that are finished. t-SNE shows the first seed; captions average over all."""
    finished = [cell for cell in chosen if cell.run(folder, profile, 0).finished]
    if not finished:
        raise UserError(f"No run of {name} is finished yet, so there is nothing to draw.")
    if name == "figure-2":
        made = figures.labels_figure(by_labels(finished, folder, profile, seeds))
    elif name == "figure-5":
        run = finished[0].run(folder, profile, 0)
        accuracy = {int(step): 100 - error for step, error in (run.result().get("test_curve") or {}).items()}
        made = figures.bound_figure(run.log(), accuracy, "test accuracy")
    else:
        panels = [panel(cell, folder, profile, seeds) for cell in ordered(finished)]
        made = figures.embeddings_figure(panels, COLUMNS[name])
    return figures.save(made, folder / profile / "figures" / name)


def ordered(chosen: list[Cell]) -> list[Cell]:
    """Without alignment in the first row, with it in the second."""
    return sorted(chosen, key=lambda cell: cell.align != "none")


def by_labels(chosen: list[Cell], folder: Path, profile: str, seeds: int) -> dict[str, Any]:
    series: dict[str, Any] = {}
    for cell in chosen:
        results = [run.result() for s in range(seeds) if (run := cell.run(folder, profile, s)).finished]
        errors, discrepancies = [r["test_error"] for r in results], [1000 * r["mmd2"] for r in results]
        series.setdefault(cell.data, {})[cell.labels] = errors, discrepancies
    return series


def panel(cell: Cell, folder: Path, profile: str, seeds: int) -> dict[str, Any]:
    """t-SNE of a run's labelled images and up to 5,000 unlabelled ones."""
    run = cell.run(folder, profile, 0)
    if not (run.path / "model.safetensors").exists():
        raise UserError(f"{run.path} has no model.safetensors, so its features cannot be drawn; run the cell again.")
    data, machine = load(cell.data), runtime()
    model, _ = load_model(run.path)
    machine.place(model)
    labelled = np.array(run.read_json("split.json")["labelled"])
    others = np.setdiff1d(np.arange(len(data.train)), labelled)
    unlabelled = np.random.default_rng(0).permutation(others)[:UNLABELLED]
    images = data.train[torch.from_numpy(np.concatenate([labelled, unlabelled]))]
    features = outputs(model, images.x, machine).features.numpy()
    of_cell = measured(cell, folder, profile, seeds)
    error, discrepancy = of_cell["test_error_pct"], of_cell["mmd2_x1e3"]
    return {
        "title": f"{cell.method}{'' if cell.align == 'none' else ' + alignment'}, {cell.labels} labels",
        "points": figures.embedding(features),
        "y": images.y.numpy(),
        "labelled": np.arange(len(images)) < len(labelled),
        "caption": f"MMD² {brief(discrepancy)}, error {brief(error)} %",
    }


def brief(statistic: Any) -> str:
    if statistic is None:
        return "unknown"
    return f"{statistic.mean:.1f}" + (f" ± {statistic.std:.1f}" if statistic.std is not None else "")
