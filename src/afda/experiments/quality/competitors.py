"""The columns of the quality suite: ours, its parts, and what a user would try instead with scikit-learn."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from afda.experiments.quality.problem import Problem


class Prediction(NamedTuple):
    """The predicted classes of the test samples, and what should be known about how they came about."""

    classes: np.ndarray
    note: str = ""


def predict_ours(problem: Problem, seed: int) -> Prediction:
    """Fit `method="auto"`; the note is the candidate that was chosen."""
    from afda.estimator import AFDAClassifier

    fitted = AFDAClassifier(method="auto", random_state=seed).fit(problem.x, problem.y)
    assert fitted.selection_ is not None
    return Prediction(fitted.predict(problem.x_test), str(fitted.selection_.chosen))


def predict_afda(problem: Problem, seed: int) -> Prediction:
    """Fit AFDA: VAT with entropy, and adversarial alignment."""
    return predict_by_net(problem, seed, method="vat+entropy", align="adversarial")


def predict_supervised(problem: Problem, seed: int) -> Prediction:
    """Fit the same net to the labels alone."""
    return predict_by_net(problem, seed, method="supervised", align=None)


def predict_by_net(problem: Problem, seed: int, **options: Any) -> Prediction:
    """Fit an AFDAClassifier with these options."""
    from afda.estimator import AFDAClassifier

    return Prediction(AFDAClassifier(random_state=seed, **options).fit(problem.x, problem.y).predict(problem.x_test))


def predict_logistic(problem: Problem, seed: int) -> Prediction:
    """Fit logistic regression to the standardised labelled samples."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, x_test = problem.flatten()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, random_state=seed))
    return Prediction(model.fit(x[problem.labelled], problem.y[problem.labelled]).predict(x_test))


def predict_label_spreading(problem: Problem, _: int) -> Prediction:
    """Fit LabelSpreading with 7 neighbours and alpha 0.2."""
    from sklearn.semi_supervised import LabelSpreading

    x, x_test = standardise(problem)
    model = LabelSpreading(kernel="knn", n_neighbors=min(7, len(x) - 1), alpha=0.2, max_iter=1000)
    return Prediction(model.fit(x, problem.y).predict(x_test))


def predict_self_training(problem: Problem, seed: int) -> Prediction:
    """Fit SelfTrainingClassifier with an SVC, or the SVC alone if there are too few labels for it."""
    from sklearn.semi_supervised import SelfTrainingClassifier
    from sklearn.svm import SVC

    x, x_test = standardise(problem)
    try:
        model = SelfTrainingClassifier(SVC(probability=True, random_state=seed)).fit(x, problem.y)
    except ValueError:  # too few labels for its probabilities
        model = SVC().fit(x[problem.labelled], problem.y[problem.labelled])
        return Prediction(model.predict(x_test), "SVC without self-training")
    return Prediction(model.predict(x_test))


def standardise(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test samples as vectors; features with mean 0 and variance 1 if their scales differ much.

    Features that share one scale, such as pixels, are left as they are: standardising them costs both methods accuracy.
    """
    from sklearn.preprocessing import StandardScaler

    x, x_test = problem.flatten()
    ranges = np.ptp(x, axis=0)
    if ranges.max() <= ONE_SCALE * np.median(ranges):
        return x, x_test
    scaler = StandardScaler().fit(x)
    return scaler.transform(x), scaler.transform(x_test)


ONE_SCALE = 5.0
"""Features share one scale if the largest range is at most this many times the median range."""

COLUMNS: dict[str, Callable[[Problem, int], Prediction]] = {
    "ours": predict_ours,
    "afda": predict_afda,
    "supervised": predict_supervised,
    "logistic": predict_logistic,
    "label_spreading": predict_label_spreading,
    "self_training": predict_self_training,
}
"""The methods that are compared, by the names of their columns."""


def predict(column: str, problem: Problem, seed: int) -> Prediction:
    """Fit a method to the training samples and return its prediction for the test samples.

    Warnings of scikit-learn, such as that a solver has not converged, are not shown.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return COLUMNS[column](problem, seed)
