"""The paper's figures in its style, as SVG, PDF and PNG."""

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from afda.disk import check_writable, refusals_explained
from afda.errors import UserError

BOUND_TERMS = {
    "features_true": "features, true classes",
    "labels_true": "labels, true classes",
    "features_predicted": "features, predicted classes",
    "labels_predicted": "labels, predicted classes",
}


def pyplot() -> Any:
    """matplotlib without a screen, or a sentence on how to get it."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise UserError("Figures need matplotlib: pip install -c constraints.txt 'afda[report]'.") from None
    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "afda", "figure.dpi": 150, "font.size": 9, "axes.spines.top": False}
    import matplotlib.pyplot as plt

    return plt


def embedding(features: np.ndarray, seed: int = 0, iterations: int = 1000) -> np.ndarray:
    """t-SNE of features to two dimensions."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    spread = np.ptp(features, axis=0).max() > 1e-6 * np.abs(features).max()
    init = "pca" if spread else "random"  # features that are all the same have no axes
    how = TSNE(2, perplexity=perplexity, init=init, random_state=seed, n_jobs=-1, max_iter=iterations)
    return how.fit_transform(features)


def draw_embedding(axes: Any, points: np.ndarray, y: np.ndarray, labelled: np.ndarray, caption: str) -> None:
    """Discs coloured by class; those of labelled images have a black border and lie on top."""
    colours = pyplot().get_cmap("tab10" if y.max() < 10 else "tab20")(y % 20)
    axes.scatter(*points[~labelled].T, c=colours[~labelled], s=3, linewidths=0, alpha=0.7, rasterized=True)
    axes.scatter(*points[labelled].T, c=colours[labelled], s=16, linewidths=0.7, edgecolors="black")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_xlabel(caption)


def embeddings_figure(panels: Sequence[dict[str, Any] | None], columns: int, note: str) -> Any:
    """t-SNE panels, each a mapping with title, points, y, labelled and caption (error and MMD^2), or an empty place."""
    plt = pyplot()
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(2.6 * columns, 2.9 * rows + 0.3), squeeze=False)
    for axes, panel in itertools.zip_longest(grid.flat, panels):
        if panel is None:
            axes.set_visible(False)
            continue
        draw_embedding(axes, panel["points"], panel["y"], panel["labelled"], panel["caption"])
        axes.set_title(panel["title"], fontsize=9)
    figure.supxlabel(note, fontsize=8)
    figure.tight_layout()
    return figure


def bound_figure(lines: list[dict[str, Any]], accuracy: dict[int, float], name: str) -> Any:
    """The four terms of Theorem 1 and the accuracy over training (the paper's figure 5)."""
    plt = pyplot()
    traced = [line for line in lines if line.get("bound")]
    steps = [line["step"] for line in traced]
    figure, left = plt.subplots(figsize=(5, 3))
    for key, label in BOUND_TERMS.items():
        # A term can be zero, which a logarithmic axis has no place for.
        left.plot(steps, [line["bound"][key] or np.nan for line in traced], label=label)
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


def labels_figure(series: dict[str, dict[int, tuple[list[float], list[float]]]]) -> Any:
    """Error and MMD^2 against the number of labels, a panel per data set, with bands of one standard deviation.

    `series` maps a data set to {labels: (errors in percent, MMD^2 times 1000)}.
    """
    plt = pyplot()
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


def trials_figure(points: list[tuple[dict[str, float], float]]) -> Any:
    """Validation error against each setting of a search."""
    plt = pyplot()
    paths = list(points[0][0])
    figure, grid = plt.subplots(1, len(paths), figsize=(2.6 * len(paths), 2.6), squeeze=False, sharey=True)
    for axes, path in zip(grid.flat, paths, strict=True):
        values = sorted({point[path] for point, _ in points})
        axes.scatter([values.index(point[path]) for point, _ in points], [error for _, error in points], s=14)
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axes.set_xlabel(path)
    grid.flat[0].set_ylabel("validation error (%)")
    figure.tight_layout()
    return figure


def as_svg(figure: Any) -> str:
    """The figure as an SVG element for a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot().close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def save(figure: Any, path: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG beside each other."""
    paths = [path.with_suffix(f".{ending}") for ending in ("svg", "pdf", "png")]
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same figure is the same file
    check_writable(path.parent)
    with refusals_explained(path.parent):
        for p in paths:
            figure.savefig(p, metadata=undated.get(p.suffix))
    pyplot().close(figure)
    return paths
