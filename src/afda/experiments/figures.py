"""Draw figures in the paper's style and save them as SVG, PDF and PNG."""

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from afda.errors import UserError
from afda.experiments.study import Trial
from afda.machine.files import check_writable, explain_os_errors
from afda.runs.log import LogLine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = dict[str, dict[int, tuple[list[float], list[float]]]]
"""Test errors in percent and MMD^2 times 1000 of all seeds, by data set and number of labels."""
BOUND_TERMS = {
    "features_true": "features, true classes",
    "labels_true": "labels, true classes",
    "features_predicted": "features, predicted classes",
    "labels_predicted": "labels, predicted classes",
}


@dataclass(frozen=True)
class Panel:
    """A t-SNE of one run: points, their classes and whether they are labelled."""

    title: str
    points: np.ndarray
    y: np.ndarray
    labelled: np.ndarray
    caption: str


def load_pyplot() -> Any:
    """Import matplotlib for use without a screen, or raise a UserError that says how to install it."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise UserError("Figures need matplotlib: pip install -c constraints.txt 'afda[report]'.") from None
    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "afda", "figure.dpi": 150, "font.size": 9, "axes.spines.top": False}
    import matplotlib.pyplot as plt

    return plt


def draw_embedding(axes: "Axes", panel: Panel) -> None:
    """Draw discs coloured by class; those of labelled images have a black border and lie on top."""
    labelled, (across, up) = panel.labelled, panel.points.T
    colours = load_pyplot().get_cmap("tab10" if panel.y.max() < 10 else "tab20")(panel.y % 20)
    others = ~labelled
    axes.scatter(across[others], up[others], c=colours[others], s=3, linewidths=0, alpha=0.7, rasterized=True)
    axes.scatter(across[labelled], up[labelled], c=colours[labelled], s=16, linewidths=0.7, edgecolors="black")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_xlabel(panel.caption)
    axes.set_title(panel.title, fontsize=9)


def draw_panels(panels: Sequence[Panel | None], columns: int, note: str) -> "Figure":
    """Draw t-SNE panels in a grid; None leaves a place empty."""
    plt = load_pyplot()
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure: Figure
    figure, grid = plt.subplots(rows, columns, figsize=(2.6 * columns, 2.9 * rows + 0.3), squeeze=False)
    for axes, panel in itertools.zip_longest(grid.flat, panels):
        if panel is None:
            axes.set_visible(False)
            continue
        draw_embedding(axes, panel)
    figure.supxlabel(note, fontsize=8)
    figure.tight_layout()
    return figure


def draw_bound(lines: Sequence[LogLine], accuracy: Mapping[int, float], name: str) -> "Figure":
    """Draw the four terms of Theorem 1 and the accuracy over training (the paper's figure 5)."""
    plt = load_pyplot()
    steps = [line.step for line in lines if line.bound]
    bounds = [line.bound for line in lines if line.bound]
    figure: Figure
    figure, left = plt.subplots(figsize=(5, 3))
    for key, label in BOUND_TERMS.items():
        # A term can be zero, which a logarithmic axis cannot show.
        left.plot(steps, [bound[key] or np.nan for bound in bounds], label=label)
    left.set_yscale("log")
    left.set_xlabel("update")
    left.set_ylabel("size of the term")
    right = left.twinx()
    right.plot(list(accuracy), list(accuracy.values()), color="black", linestyle="--", label=name)
    right.set_ylabel(f"{name} (%)")
    handles = [*left.get_lines(), *right.get_lines()]
    left.legend(
        handles, [h.get_label() for h in handles], fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0)
    )
    figure.tight_layout()
    return figure


def draw_labels(series: Series) -> "Figure":
    """Draw error and MMD^2 against the number of labels, a panel per data set, with bands of one standard deviation."""
    plt = load_pyplot()
    figure: Figure
    figure, grid = plt.subplots(1, len(series), figsize=(3.4 * len(series), 2.8), squeeze=False)
    for left, (name, points) in zip(grid.flat, series.items(), strict=True):
        right = left.twinx()
        for axes, which, colour, label in (
            (left, 0, "tab:blue", "test error (%)"),
            (right, 1, "tab:red", "MMD² × 10³"),
        ):
            labels = sorted(points)
            means = np.array([np.mean(points[n][which]) for n in labels])
            stds = np.array([np.std(points[n][which], ddof=1) if len(points[n][which]) > 1 else 0.0 for n in labels])
            axes.plot(labels, means, marker="o", color=colour)
            axes.fill_between(labels, means - stds, means + stds, color=colour, alpha=0.2, linewidth=0)
            axes.set_ylabel(label, color=colour)
        left.set_xlabel("labels")
        left.set_title(name)
    figure.tight_layout()
    return figure


def draw_trials(trials: Sequence[Trial]) -> "Figure":
    """Draw the validation error against each setting of a search."""
    plt = load_pyplot()
    paths = list(trials[0].settings)
    figure: Figure
    figure, grid = plt.subplots(1, len(paths), figsize=(2.6 * len(paths), 2.6), squeeze=False, sharey=True)
    for axes, path in zip(grid.flat, paths, strict=True):
        values = sorted({trial.settings[path] for trial in trials})
        axes.scatter([values.index(t.settings[path]) for t in trials], [t.val_error for t in trials], s=14)
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axes.set_xlabel(path)
    grid.flat[0].set_ylabel("validation error (%)")
    figure.tight_layout()
    return figure


def render_svg(figure: "Figure") -> str:
    """Return the figure as an SVG element for a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    load_pyplot().close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def save_figure(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG beside each other, and return their paths."""
    paths = [path.with_suffix(f".{ending}") for ending in ("svg", "pdf", "png")]
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # so that the same figure is the same file
    check_writable(path.parent)
    with explain_os_errors(path.parent):
        for p in paths:
            figure.savefig(p, metadata=undated.get(p.suffix))
    load_pyplot().close(figure)
    return paths
