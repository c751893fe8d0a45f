"""The scikit-learn estimator: `AFDAClassifier`, a classifier and transformer that learns from partial labels."""

import contextlib
import copy
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import joblib
import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from afda.data.arrays import convert_inputs, from_arrays
from afda.data.images import UNLABELLED, DataSet, Images
from afda.errors import UserError
from afda.machine.runtime import Runtime, keep_freed_memory, select_runtime
from afda.nets import Output
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.recipes.candidates import list_candidates
from afda.runs.model import compute_outputs
from afda.runs.selection import Selection
from afda.training.budget import LONGEST_TRIAL
from afda.training.loop import run_updates
from afda.training.outliers import weigh_pool
from afda.training.request import AUTO
from afda.training.select import TrialDone, begin_selection, run_trials
from afda.training.state import Training, begin, make_log_line

TORCH_STATE = threading.Lock()
"""Held while a fit uses torch's random state and number of threads, of which a process has one each."""


class AFDAClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A net trained on a few labels and many samples without one, their features aligned.

    `y` is -1 where there is no label, or None or "" among names; scikit-learn's cross-validation, which sorts labels,
    takes only "". `X` holds vectors (n, d), grey images (n, h, w) or colour images (n, h, w, channels); images are
    uint8, or floats from 0 to 1. If every sample has a label, all of them also serve as the samples without one, so
    that consistency and entropy still regularise.

    Parameters
    ----------
    method : "auto" compares several by cross-validation on the labels, trains the best with all of them, and calibrates
        `predict_proba` by the held-out predictions. Otherwise a semi-supervised method, such as "vat"; "a+b" adds two
        up, "supervised" uses the labels alone, and "vat+entropy" is the paper's.
    align : "adversarial", "reversal", "mmd", or None.
    net, steps, labelled_batch, unlabelled_batch, learning_rate : None leaves each as in the recipe for such data.
    settings : any other field of the recipe, as a list of "path=value" such as "method.vat.radius=2.0".
    random_state : a seed makes `fit` repeatable.
    device : "auto", "cpu", "cuda", ...
    n_jobs : CPU threads; -1 takes all cores. None is one for vectors, whose nets are too small to share out, and leaves
        them as torch has them for images.
    verbose : whether `fit` prints ten lines of progress.

    Attributes
    ----------
    classes_ : the labels that occur in `y`, sorted.
    model_ : the trained `afda.runs.model.Model`, on the CPU.
    recipe_ : the `afda.Recipe` that it was trained by.
    selection_ : the candidates that were compared, an `afda.runs.selection.Selection`; None unless `method` is "auto".
    n_features_in_ : `X.shape[1]`.
    feature_names_in_ : the names of the columns of `X`, if it has any.
    """

    def __init__(
        self,
        *,
        method: str = AUTO,
        align: str | None = "adversarial",
        net: str | None = None,
        steps: int | None = None,
        labelled_batch: int | None = None,
        unlabelled_batch: int | None = None,
        learning_rate: float | None = None,
        settings: Sequence[str] = (),
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.align = align
        self.net = net
        self.steps = steps
        self.labelled_batch = labelled_batch
        self.unlabelled_batch = unlabelled_batch
        self.learning_rate = learning_rate
        self.settings = settings
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on the samples `X`, those with a label in `y` and those without."""
        X, y = validate_data(self, X, y, allow_nd=True)
        known, labels = split_labels(y)
        check_classification_targets(labels)
        numbers = np.full(len(y), UNLABELLED)
        self.classes_, numbers[known] = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"AFDAClassifier needs labels of at least 2 classes, but y has {len(self.classes_) or 'no'} class."
            )
        with raise_value_errors(), self._hold_torch_state(X) as machine:
            data = from_arrays(X, numbers, classes=list(map(str, self.classes_)))
            if known.all() and self._uses_unlabelled(data):
                data = duplicate_unlabelled(data)
            self.selection_ = self._compare(data, machine) if self.method == AUTO else None
            self.recipe_ = self._recipe(data) if self.selection_ is None else self.selection_.read_chosen()
            training = begin(self.recipe_, data, machine)
            weigh_pool(training)
            self._follow(training)
            if not training.is_finite():
                raise ValueError("The loss stopped being a number; try a lower learning_rate.")
            self.model_ = training.make_model().eval().cpu()
            self.model_.zero_grad()
            if self.selection_ is not None:
                self.model_.temperature = self.selection_.fit_temperature() or 1.0
        self._shape = X.shape[1:]
        self._n_features_out = self.model_.classifier.features
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class of each sample."""
        logits = self._outputs(X).logits
        return self.classes_[logits.argmax(dim=1).numpy()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, in the order of `classes_`."""
        logits = self._outputs(X).logits
        return self.model_.probabilities(logits.double()).numpy()

    def transform(self, X: Any) -> np.ndarray:
        """Return the aligned features of each sample."""
        features = self._outputs(X).features.numpy()
        return features.astype(np.float64) if np.asarray(X).dtype == np.float64 else features

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the samples that have a label."""
        known, labels = split_labels(column_or_1d(y))
        if not known.any():
            raise ValueError("None of these samples has a label to score by.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(labels, self.predict(X)[known], sample_weight=weight))

    def _uses_unlabelled(self, data: DataSet) -> bool:
        return self.method == AUTO or self._recipe(data).uses_unlabelled

    def _settings(self) -> list[str]:
        options = {
            "net": self.net,
            "steps": self.steps,
            "labelled_batch": self.labelled_batch,
            "unlabelled_batch": self.unlabelled_batch,
            "optimisation.learning_rate": self.learning_rate,
            "seed": check_random_state(self.random_state).randint(2**31 - 1),
        }
        changes = [f"{path}={value}" for path, value in options.items() if value is not None]
        return changes + ([self.settings] if isinstance(self.settings, str) else list(self.settings or ()))

    def _recipe(self, data: DataSet) -> Recipe:
        kind = "own-vectors" if len(data.train.shape) == 1 else "own-images"
        return recipe(kind, data, self.method, self.align or "none").with_settings(self._settings())

    def _compare(self, data: DataSet, machine: Runtime) -> Selection:
        """Compare the candidates of the automatic choice."""
        candidates = list_candidates(data, settings=tuple(self._settings()), align=self.align or "none")
        kind = "vectors" if len(data.train.shape) == 1 else "images"
        selection = begin_selection(candidates, data, LONGEST_TRIAL[kind])

        def show(trial: TrialDone) -> None:
            if self.verbose:
                print(f"trial {trial.done} of at most {trial.most}: {trial.candidate}")

        run_trials(selection, data, machine, on_trial=show)
        return selection

    def _follow(self, training: Training) -> None:
        every = math.ceil(training.recipe.steps / 10)
        for step in run_updates(training):
            if self.verbose and (step % every == 0 or step == training.recipe.steps):
                line = make_log_line(training, step % every or every)
                numbers = {"step": line.step, **line.values}
                print(", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))

    def _outputs(self, X: Any) -> Output:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, allow_nd=True)
        if X.shape[1:] != self._shape:
            raise ValueError(f"X has samples of shape {X.shape[1:]}, but AFDAClassifier was fitted to {self._shape}.")
        with raise_value_errors(), self._hold_torch_state(X) as machine:
            model = copy.deepcopy(self.model_)
            machine.place(model)
            if X.ndim == 2 and machine.device.type == "cpu":
                # In float32 what a sample gives would depend, in the last digits, on those it is batched with.
                model.double()
            return compute_outputs(model, convert_inputs(X, "X"), machine)

    @contextlib.contextmanager
    def _hold_torch_state(self, X: np.ndarray) -> Iterator[Runtime]:
        """Yield the runtime; restore the caller's random state and number of threads afterwards."""
        of_kind = 1 if X.ndim == 2 else None
        threads = of_kind if self.n_jobs is None else joblib.effective_n_jobs(self.n_jobs)
        with TORCH_STATE:
            before = torch.get_num_threads()
            try:
                machine = select_runtime(self.device, "float32", threads)
                with torch.random.fork_rng([machine.device] if machine.device.type == "cuda" else []):
                    yield machine
            finally:
                torch.set_num_threads(before)
                keep_freed_memory(False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def split_labels(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which samples have a label, one that is not -1, None or an empty name; and these labels."""
    if y.dtype.kind != "O":
        known = y != ("" if y.dtype.kind == "U" else UNLABELLED)
        return known, y[known]
    known = np.array([label is not None and label not in ("", UNLABELLED) for label in y], dtype=bool)
    if len({isinstance(label, str) for label in y[known]}) > 1:
        raise ValueError("y mixes names and numbers; give labels of one kind.")
    numbers = any(not isinstance(label, str) for label in y[known])
    return known, np.array(y[known].tolist()) if numbers else y[known]


def duplicate_unlabelled(data: DataSet) -> DataSet:
    """Return the data with every training image once more, without its label."""
    x, y = data.train.x, data.train.y
    return replace(data, train=Images(torch.cat([x, x]), torch.cat([y, torch.full_like(y, UNLABELLED)])))


@contextlib.contextmanager
def raise_value_errors() -> Iterator[None]:
    """Turn a UserError into a ValueError, as scikit-learn has it, without the dashes of command-line options."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error).replace("--", "")) from None
