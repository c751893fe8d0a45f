"""Whether bfloat16 changes the error: rows of tables in performance.md and experiments.md, from results/."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

RUNS = Path(__file__).parents[1] / "results"
COMPARED = {
    "": {
        "digits, 50 labels, AFDA": "digits-afda-50",
        "SVHN, 1,000 labels, AFDA, 4,000 updates": "svhn-afda-1000-quarter",
        "SVHN, 250 labels, AFDA, 4,000 updates": "svhn-afda-250-quarter",
        "digits, 50 labels, Mean Teacher, aligned": "digits-mean-teacher-aligned-50",
        "SVHN, 250 labels, Mean Teacher, aligned, 2,000 updates": "svhn-mean-teacher-aligned-250-quarter",
        "digits, 50 labels, Pi-model, aligned": "digits-pi-model-aligned-50",
        "SVHN, 250 labels, Pi-model, aligned, 2,000 updates": "svhn-pi-model-aligned-250-quarter",
        "digits, 50 labels, supervised-only": "digits-supervised-50",
        "SVHN, 250 labels, supervised-only, 3,000 updates": "svhn-supervised-250-quarter",
    },
    "-rounded-first": {
        "digits, 50 labels, AFDA": "digits-afda-50",
        "SVHN, 250 labels, AFDA, 4,000 updates": "svhn-afda-250-quarter",
    },
    "-rounded-d": {
        "SVHN, 250 labels, AFDA, 4,000 updates": "svhn-afda-250-quarter",
        "digits, 50 labels, supervised-only": "digits-supervised-50",
        "SVHN, 250 labels, supervised-only, 3,000 updates": "svhn-supervised-250-quarter",
        "SVHN, 250 labels, an eighth of the width, supervised-only, 20,000 updates": "svhn-supervised-250",
    },
}
"""What was compared, by the version of the code: now, before the first convolution was in float32, and before d was."""
ELSEWHERE = {"digits-supervised-50": "demo/supervised-50", "svhn-supervised-250": "cpu/svhn-ablation/supervised-250"}
"""Runs in float32 that are there for another purpose, too."""


def errors(beginning: str) -> dict[int, float]:
    """The test error of every finished run whose name goes on with its seed."""
    found = RUNS.glob(f"{beginning}-seed*/result.json")
    return {int(p.parent.name.rpartition("-seed")[2]): json.loads(p.read_text())["test_error"] for p in found}


def row(about: str, name: str, version: str) -> str:
    """Both precisions, of the seeds that both have."""
    full = errors(ELSEWHERE.get(name, f"bfloat16/{name}-float32"))
    half = errors(f"bfloat16/{name}-bfloat16{version}")
    seeds = sorted(full.keys() & half.keys())

    def shown(of: dict[int, float]) -> str:
        each = ", ".join(f"{of[seed]:.1f}" for seed in seeds)
        return f"{mean(of[seed] for seed in seeds):.2f}" + (f" ({each})" if 1 < len(seeds) < 10 else "")

    differences = [half[seed] - full[seed] for seed in seeds]
    error = f" ± {stdev(differences) / math.sqrt(len(seeds)):.2f}" if len(seeds) > 1 else ""
    numbers = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"| {about}, {numbers} | {shown(full)} | {shown(half)} | {mean(differences):.2f}{error} |"


def rows() -> Iterator[str]:
    for version, compared in COMPARED.items():
        for about, name in compared.items():
            yield row(about, name, version)


if __name__ == "__main__":
    print(*rows(), sep="\n")
