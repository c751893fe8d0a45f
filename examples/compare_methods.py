"""Compare methods on the same labelled images, with and without alignment.

The labelled images depend on the seed alone, so the rows differ only by the method. Runs are
kept: called again, the script reuses those that are finished.
"""

import argparse
from pathlib import Path
from statistics import mean

from afda import train
from afda.data import load
from afda.recipes import recipe

METHODS = ("supervised", "pi-model", "vat+entropy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    asked = parser.parse_args()

    data = load("digits")
    print(f"{'method':<14}{'plain':>10}{'aligned':>10}   test error in percent, mean of {asked.seeds} seeds")
    for method in METHODS:
        errors = {}
        for align in ("none", "adversarial"):
            named = recipe("digits-demo", data, method, align, labels=20)
            recipes = [named.with_settings([f"steps={asked.steps}", f"seed={seed}"]) for seed in range(asked.seeds)]
            runs = [train(r, data, asked.out / f"{r.title}-{r.seed}", resume=True) for r in recipes]
            errors[align] = mean(run.read_result().test_error for run in runs)
        print(f"{method:<14}{errors['none']:>10.1f}{errors['adversarial']:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
