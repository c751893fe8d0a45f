"""Print the tables of "Outliers in the pool" and "Class shares" in docs/explanation/quality.md: minutes on one core.

python docs/scripts/pool.py outliers
python docs/scripts/pool.py shares
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import numpy as np

from afda.data.arrays import from_arrays
from afda.experiments.quality.problem import Problem
from afda.experiments.quality.sets import SETS
from afda.machine.runtime import select_runtime
from afda.recipes import recipe
from afda.runs.model import compute_outputs
from afda.training.loop import run_updates
from afda.training.outliers import weigh_pool
from afda.training.state import Training, begin

RUNTIME = select_runtime("cpu", "float32", 1)


def fit(problem: Problem, seed: int, method: str, align: str, settings: Sequence[str]) -> tuple[float, Training]:
    """Return the test error in percent, and the training."""
    data = from_arrays(problem.x, problem.y, classes=[str(k) for k in range(problem.y.max() + 1)])
    made = recipe("own-vectors", data, method, align).with_settings([f"seed={seed}", *settings])
    training = begin(made, data, RUNTIME)
    weigh_pool(training)
    for _ in run_updates(training):
        pass
    x = from_arrays(problem.x_test, problem.y_test, classes=list(data.classes)).train.x
    predicted = compute_outputs(training.make_model(), x, RUNTIME).logits.argmax(dim=1).numpy()
    return 100 * float((predicted != problem.y_test).mean()), training


def print_outliers() -> None:
    for labels in (5, 20):
        for method, align in (("vat+entropy", "adversarial"), ("vat", "none")):
            for seeds in (range(100, 106), range(120, 126)):
                print_row(labels, method, align, seeds)


def print_row(labels: int, method: str, align: str, seeds: range) -> None:
    rows = []
    for seed in seeds:
        problem = SETS["out-of-class"].make(labels, seed)
        inside = problem.truth < 7
        clean = replace(problem, x=problem.x[inside], y=problem.y[inside], truth=problem.truth[inside])
        weighted, training = fit(problem, seed, method, align, ["outliers=down-weight"])
        kept, alone = (fit(p, seed, method, align, ["outliers=keep"])[0] for p in (problem, clean))
        rows.append((kept, weighted, alone, 100 * (training.outlier_share or 0)))
    print(labels, method, align, *(f"{mean(column):.2f}" for column in zip(*rows, strict=True)), flush=True)


def print_shares() -> None:
    for name in ("digits", "uneven-labels", "skewed-pool", "imbalance"):
        for labels in (5, 20):
            for estimator in ("mean", "em", "bbse"):
                rows = []
                for seed in (100, 101, 102):
                    problem = SETS[name].make(labels, seed)
                    settings = [f"shares_by={estimator}", "outliers=keep"]
                    error, training = fit(problem, seed, "vat+entropy", "adversarial", settings)
                    assert training.shares is not None
                    true = np.bincount(problem.truth[training.split.unlabelled]) / len(training.split.unlabelled)
                    shares = (training.shares.labelled, training.shares.estimate)
                    rows.append((error, *(50 * float(np.abs(share.numpy() - true).sum()) for share in shares)))
                print(
                    name, labels, estimator, *(f"{mean(column):.1f}" for column in zip(*rows, strict=True)), flush=True
                )


if __name__ == "__main__":
    {"outliers": print_outliers, "shares": print_shares}[sys.argv[1]]()
