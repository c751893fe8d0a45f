"""`selection.json`: the candidates of an automatic choice, their cross-validation, and which one was taken and why."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from afda.measures import fit_temperature
from afda.runs.schemas import Count, RunFile
from afda.runs.statistics import Interval, corrected_t_test, wilson_interval

SIGNIFICANT = 0.05
Outcome = Literal["helped", "harmed", "unclear"]


class Fold(RunFile):
    """Labelled training images that are held out together, and their classes."""

    rows: list[Count]
    y: list[Count]


class Trial(RunFile):
    """One training without the labels of one fold: what it predicts for these images."""

    fold: Count
    logits: list[list[float]]
    seconds: Annotated[float, Field(ge=0)]


class Candidate(RunFile):
    """A recipe that may be chosen, and its trainings so far."""

    name: str
    summary: str
    recipe: dict[str, Any]
    uses_unlabelled: bool
    trials: list[Trial] = []


@dataclass(frozen=True)
class Estimate:
    """A cross-validated error in percent, with its 95 % interval."""

    error: float
    interval: Interval
    wrong: int
    images: int


class Selection(RunFile):
    """All of an automatic choice. Candidates are in order of preference, within those with and without the pool."""

    folds: list[Fold]
    steps_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The length of the trainings that are compared, as a share of the final one."""
    candidates: list[Candidate]
    chosen: str | None = None
    reason: str | None = None

    def find(self, name: str) -> Candidate:
        """Return the candidate of this name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def collect_mistakes(self, candidate: Candidate) -> dict[int, int]:
        """Return 1 for each held-out image that a candidate misclassifies and 0 for the others, by row."""
        mistakes = {}
        for trial in candidate.trials:
            fold = self.folds[trial.fold]
            for row, y, logits in zip(fold.rows, fold.y, trial.logits, strict=True):
                mistakes[row] = int(int(np.argmax(logits)) != y)
        return mistakes

    def estimate(self, candidate: Candidate) -> Estimate | None:
        """Return the cross-validated error of a candidate; None if it was never trained."""
        mistakes = self.collect_mistakes(candidate)
        if not mistakes:
            return None
        wrong = sum(mistakes.values())
        interval = wilson_interval(wrong, len(mistakes))
        assert interval is not None
        return Estimate(100 * wrong / len(mistakes), interval, wrong, len(mistakes))

    def compare(self, first: Candidate, second: Candidate) -> tuple[float, float]:
        """Return by how much the first's error exceeds the second's on the images of both, and its standard error.

        Both are shares of 1. The error of the difference counts images; it is infinite without images.
        """
        ours, theirs = self.collect_mistakes(first), self.collect_mistakes(second)
        differences = np.array([ours[row] - theirs[row] for row in ours.keys() & theirs.keys()], dtype=float)
        if len(differences) < 2:
            return 0.0, math.inf
        return float(differences.mean()), float(differences.std(ddof=1) / math.sqrt(len(differences)))

    def is_better(self, first: Candidate, second: Candidate) -> bool:
        """Return whether the first has less error than the second, by more than the standard error of the difference."""
        excess, noise = self.compare(second, first)
        return excess > noise

    def choose(self) -> tuple[Candidate, str]:
        """Return the candidate to take, and why.

        The best with the unlabelled images is taken if it is better than the best on the labels alone by more than the
        noise. Within each kind an earlier candidate is kept unless a later one is better by more than that.
        """
        simple, strong = (self._choose_among(pool) for pool in (False, True))
        if simple is None or strong is None:
            only = strong or simple
            assert only is not None
            return only, "it is the only kind of candidate"
        if not any(candidate.trials for candidate in self.candidates):
            return strong, "every class has one label only, so the candidates cannot be compared"
        excess, noise = self.compare(simple, strong)
        points = f"{abs(100 * excess):.1f} points"
        if excess > noise:
            return strong, f"its error is {points} below that of {simple.name} (standard error {100 * noise:.1f})"
        if excess > 0:
            return simple, f"{strong.name} is better by {points} only (standard error {100 * noise:.1f})"
        return simple, f"no candidate that uses the unlabelled images is better; {strong.name} is worse by {points}"

    def _choose_among(self, uses_unlabelled: bool) -> Candidate | None:
        """Return the preferred candidate of a kind, among those that were trained as often as any."""
        of_kind = [candidate for candidate in self.candidates if candidate.uses_unlabelled == uses_unlabelled]
        most = max((len(candidate.trials) for candidate in of_kind), default=0)
        chosen: Candidate | None = None
        for candidate in of_kind:
            if len(candidate.trials) == most and (chosen is None or self.is_better(candidate, chosen)):
                chosen = candidate
        return chosen

    def fit_temperature(self, name: str) -> float:
        """Return the temperature that calibrates a candidate's predictions for held-out images; 1 without any."""
        candidate = self.find(name)
        if not candidate.trials:
            return 1.0
        logits = [row for trial in candidate.trials for row in trial.logits]
        y = [k for trial in candidate.trials for k in self.folds[trial.fold].y]
        return fit_temperature(torch.tensor(logits), torch.tensor(y))

    def judge(self) -> tuple[Outcome, str] | None:
        """Return whether the unlabelled images help, from all trainings of the two candidates that differ in them.

        None if the best candidate on labels alone or the best with the pool was not trained. The test counts trainings,
        not images (Nadeau and Bengio, 2003), because two trainings differ by more than the choice of images explains.
        """
        simple, strong = (self._choose_among(pool) for pool in (False, True))
        if simple is None or strong is None or not simple.trials or not strong.trials:
            return None
        of_simple, of_strong = self.estimate(simple), self.estimate(strong)
        assert of_simple is not None
        assert of_strong is not None
        p = corrected_t_test(self._compare_folds(simple, strong), 1 / max(len(self.folds) - 1, 1))
        difference = of_strong.error - of_simple.error
        errors = f"cross-validated error {of_strong.error:.1f} % against {of_simple.error:.1f} %"
        trainings = f"{len(strong.trials)} trainings each"
        if p < SIGNIFICANT and difference:
            outcome: Outcome = "helped" if difference < 0 else "harmed"
            did = "help" if difference < 0 else "do harm"
            return outcome, f"The unlabelled images {did}: {errors} on the labels alone ({trainings}, p = {p:.2g})."
        return (
            "unclear",
            f"Whether the unlabelled images help is unclear: {errors} on the labels alone may be chance ({trainings}).",
        )

    def _compare_folds(self, first: Candidate, second: Candidate) -> list[float]:
        """Return the difference of the errors on each fold that both were tested on."""
        errors = []
        for candidate in (first, second):
            mistakes = self.collect_mistakes(candidate)
            errors.append(
                {t.fold: np.mean([mistakes[row] for row in self.folds[t.fold].rows]) for t in candidate.trials}
            )
        return [float(errors[0][fold] - errors[1][fold]) for fold in sorted(errors[0].keys() & errors[1].keys())]
