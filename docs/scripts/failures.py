"""Print test errors in percent on problems where version 0.1 failed: the labels alone, AFDA and the automatic choice.

`python docs/scripts/failures.py` takes about ten minutes on one core.
"""

from typing import Any

import numpy as np
from sklearn import datasets

from afda import AFDAClassifier

Problem = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def make_clusters(classes: int, seed: int) -> Problem:
    """Return 64-d clusters around centres N(0, 1.2^2): 2 labelled, 10 unlabelled and 10 test points per class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1.2, (classes, 64))
    y, y_test = np.repeat(np.arange(classes), 12), np.repeat(np.arange(classes), 10)
    x, x_test = (centres[part] + rng.normal(size=(len(part), 64)) for part in (y, y_test))
    return x, np.where(np.arange(len(y)) % 12 < 2, y, -1), x_test, y_test


def hide_labels(x: np.ndarray, y: np.ndarray, counts: dict[int, int], test: int, seed: int) -> Problem:
    """Return the problem with this many labels of each class, and this many test samples."""
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = x[order], y[order]
    given = np.full(len(y), -1)
    for k, count in counts.items():
        given[test + np.flatnonzero(y[test:] == k)[:count]] = k
    return x[test:], given[test:], x[:test], y[:test]


def make_uneven_digits(most: int, seed: int) -> Problem:
    """Return the digits as images of 8x8 pixels, with `most` labels of one class and 5 of each other."""
    x, y = datasets.load_digits(return_X_y=True)
    return hide_labels(x.reshape(-1, 8, 8) / 16, y, {k: most if k == 0 else 5 for k in range(10)}, 500, seed)


def make_vectors(name: str, test: int, seed: int) -> Problem:
    """Return one of scikit-learn's sets with 5 labels per class."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return hide_labels(x, y, dict.fromkeys(np.unique(y).tolist(), 5), test, seed)


def main() -> None:
    problems = {
        "100 classes, 2 labels each": [make_clusters(100, seed) for seed in (0, 1)],
        "300 classes, 2 labels each": [make_clusters(300, seed) for seed in (0, 1)],
        "breast cancer, 5 labels per class": [make_vectors("breast_cancer", 200, seed) for seed in range(5)],
        "digits as vectors, 5 labels per class": [make_vectors("digits", 500, seed) for seed in range(5)],
        "digits 8x8, 50 labels of one class and 5 of each other": [make_uneven_digits(50, seed) for seed in (0, 1)],
        "digits 8x8, 30 : 5": [make_uneven_digits(30, seed) for seed in (0, 1)],
    }
    methods: dict[str, dict[str, Any]] = {
        "supervised-only": {"method": "supervised", "align": None},
        "AFDA": {"method": "vat+entropy"},
        "automatic": {},
    }
    for name, cases in problems.items():
        for method, options in methods.items():
            errors, chosen = [], []
            for seed, (x, y, x_test, y_test) in enumerate(cases):
                fitted = AFDAClassifier(random_state=seed, n_jobs=1, **options).fit(x, y)
                errors.append(100 * float((fitted.predict(x_test) != y_test).mean()))
                chosen.append("" if fitted.selection_ is None else str(fitted.selection_.chosen))
            each = ", ".join(f"{error:.1f}" for error in errors)
            print(f"| {name} | {method} | {np.mean(errors):.1f} | {each} | {' '.join(chosen)} |", flush=True)


if __name__ == "__main__":
    main()
