"""`selection.json`: the candidates of an automatic choice, their cross-validation, and which one was taken and why."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from afda.measures import fit_temperature
from afda.recipe import Recipe
from afda.runs.schemas import Count, RunFile
from afda.runs.statistics import Interval, corrected_t_test, wilson_interval

SIGNIFICANT = 0.05
ENOUGH_TO_TELL = 50
"""Held-out images from which the error alone decides between candidates with and without the unlabelled images."""
MOST_WEIGHT = 10.0
"""A held-out image counts at most this many times as much as without weights, and at least this many times less."""
Outcome = Literal["helped", "harmed", "unclear"]


class Fold(RunFile):
    """Labelled training images that are held out together, and their classes."""

    rows: list[Count]
    y: list[Count]


class Trial(RunFile):
    """One training without the labels of one fold: what it predicts for these images."""

    fold: Count
    logits: list[list[float]]
    pool: list[float] = Field(default_factory=list)
    """The mean prediction for unlabelled images."""
    seconds: Annotated[float, Field(ge=0)]


class Candidate(RunFile):
    """A recipe that may be chosen, and its trainings so far."""

    name: str
    summary: str
    recipe: dict[str, Any]
    uses_unlabelled: bool
    trials: list[Trial] = Field(default_factory=list)


@dataclass(frozen=True)
class Judgement:
    """Whether the unlabelled images help, and the sentence that says so."""

    outcome: Outcome
    sentence: str


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
    automatic: bool = True
    """Whether one of them is chosen; otherwise the user has named one, which is only compared."""
    steps_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The length of the trainings that are compared, as a share of the final one."""
    seconds: Annotated[float, Field(ge=0)] | None = None
    """Time for the trials; None for as long as they take."""
    note: str | None = None
    """What the user should know about the candidates."""
    candidates: list[Candidate]
    shares: list[float] | None = None
    """Class shares of the unlabelled images: the mean prediction of the best candidate on the labels alone."""
    labelled_shares: list[float] = Field(default_factory=list)
    chosen: str | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        """Refuse a file whose parts do not fit together."""
        names = [candidate.name for candidate in self.candidates]
        if not names or self.chosen not in (None, *names):
            raise ValueError("the chosen candidate is not among those that were compared")
        if any(len(fold.rows) != len(fold.y) or not fold.rows for fold in self.folds):
            raise ValueError("a fold has not one class for each image")
        for trial in (trial for candidate in self.candidates for trial in candidate.trials):
            y = self.folds[trial.fold].y if trial.fold < len(self.folds) else []
            widths = {len(row) for row in trial.logits}
            if not y or len(trial.logits) != len(y) or len(widths) != 1 or max(y) >= min(widths):
                raise ValueError("a trial does not fit its fold")
        return self

    def find(self, name: str) -> Candidate:
        """Return the candidate of this name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def estimate_shares(self) -> list[float] | None:
        """Return the mean prediction for unlabelled images by the best candidate on the labels alone, if any."""
        best = self._choose_among(uses_unlabelled=False)
        means = [] if best is None else [trial.pool for trial in best.trials if trial.pool]
        return None if not means else [round(float(share), 6) for share in np.mean(means, axis=0)]

    def read_chosen(self) -> Recipe:
        """Return the recipe of the chosen candidate."""
        assert self.chosen is not None
        return Recipe.of(self.find(self.chosen).recipe)

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

    def weigh_images(self) -> dict[int, float]:
        """Return the weight of each held-out image, by row: the estimated share of its class by that of the labels.

        So errors count as they would among the unlabelled images. Without an estimate all weights are 1.
        """
        rows = {row: y for fold in self.folds for row, y in zip(fold.rows, fold.y, strict=True)}
        if self.shares is None or not self.labelled_shares:
            return dict.fromkeys(rows, 1.0)
        ratios = np.array(self.shares) / np.maximum(self.labelled_shares, 1e-12)
        ratios = ratios.clip(1 / MOST_WEIGHT, MOST_WEIGHT)
        return {row: float(ratios[y]) for row, y in rows.items()}

    def collect_common(self, first: Candidate, second: Candidate) -> list[int]:
        """Return the rows of the images that both were tested on."""
        return sorted(self.collect_mistakes(first).keys() & self.collect_mistakes(second).keys())

    def compare(self, first: Candidate, second: Candidate) -> tuple[float, float]:
        """Return by how much the first's error exceeds the second's on the images of both, and its standard error.

        Both are shares of 1, by the weights of the images. The error of the difference counts images; it is infinite
        without images.
        """
        ours, theirs = self.collect_mistakes(first), self.collect_mistakes(second)
        both, weight_of = self.collect_common(first, second), self.weigh_images()
        if len(both) < 2:
            return 0.0, math.inf
        weights = np.array([weight_of[row] for row in both])
        differences = weights / weights.mean() * np.array([ours[row] - theirs[row] for row in both], dtype=float)
        # Rounded, so that one image more of one of them, whose difference equals its noise, never counts as more.
        return round(float(differences.mean()), 9), round(float(differences.std(ddof=1)) / len(differences) ** 0.5, 9)

    def choose(self) -> tuple[Candidate, str]:
        """Return the candidate to take, and why.

        The best with the unlabelled images is compared with the best on the labels alone. The one with less error is
        taken, and that on the labels alone if they are equal. With fewer than `ENOUGH_TO_TELL` held-out images the
        comparison is mostly noise: the unlabelled images are used unless that is worse by more than the noise, and of
        the candidates that use them an earlier one is kept unless a later one is better by more than the noise.
        """
        simple, strong = (self._choose_among(pool) for pool in (False, True))
        if simple is None or strong is None:
            only = strong or simple
            assert only is not None
            return only, "its error is the lowest" if only.trials else "there is nothing to compare it with"
        if not any(candidate.trials for candidate in self.candidates):
            return strong, "every class has one label only, so the candidates cannot be compared"
        excess, noise = self.compare(simple, strong)
        weighted = "" if self.shares is None else ", weighted by the estimated class shares"
        points = f"{abs(100 * excess):.1f} points"
        if math.isfinite(noise):
            points += f" with a standard error of {100 * noise:.1f}"
        common = f"on the {len(self.collect_common(simple, strong))} images of both{weighted}"
        # What is doubtful goes in favour of AFDA, not of what is left when it has been dropped.
        is_first = strong is next(candidate for candidate in self.candidates if candidate.uses_unlabelled)
        few = self.has_few_images
        if excess > (noise if few and not is_first else 0):
            return strong, f"its error {common} is below that of {simple.name} by {points}"
        if few and is_first and excess >= -noise:
            return strong, f"the labels are too few to tell it from {simple.name}: {points} {common}"
        if excess == 0:
            return simple, f"its error {common} is that of {strong.name}, which needs the unlabelled images"
        if excess > 0:
            return simple, f"the error of {strong.name} {common} is lower by no more than the noise: {points}"
        return simple, f"the error of {strong.name} {common} is higher by {points}"

    def _choose_among(self, uses_unlabelled: bool) -> Candidate | None:
        """Return the preferred candidate of a kind, among those that were trained as often as any."""
        of_kind = [candidate for candidate in self.candidates if candidate.uses_unlabelled == uses_unlabelled]
        most = max((len(candidate.trials) for candidate in of_kind), default=0)
        chosen: Candidate | None = None
        for candidate in of_kind:
            if len(candidate.trials) == most and (chosen is None or self.is_preferred(candidate, chosen)):
                chosen = candidate
        return chosen

    def is_preferred(self, later: Candidate, earlier: Candidate) -> bool:
        """Return whether a candidate replaces an earlier one of its kind."""
        excess, noise = self.compare(earlier, later)
        return excess > (noise if later.uses_unlabelled and self.has_few_images else 0)

    @property
    def has_few_images(self) -> bool:
        """Whether too few images are held out for their errors alone to decide."""
        return sum(len(fold.rows) for fold in self.folds) < ENOUGH_TO_TELL

    def collect_held_out(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the logits of the chosen candidate for held-out images, and their classes; None if it has no trial."""
        candidate = None if self.chosen is None else self.find(self.chosen)
        if candidate is None or not candidate.trials:
            return None
        logits = [row for trial in candidate.trials for row in trial.logits]
        return torch.tensor(logits), torch.tensor([k for trial in candidate.trials for k in self.folds[trial.fold].y])

    def fit_temperature(self) -> float | None:
        """Return the temperature that calibrates the chosen candidate's predictions for held-out images, if any.

        It is 1 at least: the final training is longer and therefore more confident, never less.
        """
        held_out = self.collect_held_out()
        return None if held_out is None else max(1.0, fit_temperature(*held_out))

    @property
    def held_out_rows(self) -> list[int]:
        """The rows of the images that `collect_held_out` has logits for, in the same order."""
        candidate = None if self.chosen is None else self.find(self.chosen)
        return [row for trial in (candidate.trials if candidate else []) for row in self.folds[trial.fold].rows]

    def judge(self) -> Judgement | None:
        """Return whether the unlabelled images help, from all trainings of the two candidates that differ in them.

        None if the best candidate on labels alone or the best with the pool was not trained. The test counts trainings,
        not images (Nadeau and Bengio, 2003), because two trainings differ by more than the choice of images explains.
        """
        simple, strong = (self._choose_among(pool) for pool in (False, True))
        if simple is None or strong is None or not simple.trials or not strong.trials:
            return None
        differences = self._compare_folds(simple, strong)
        grain = 1 / min(len(fold.rows) for fold in self.folds)
        p = corrected_t_test(differences, 1 / max(len(self.folds) - 1, 1), grain)
        ours, theirs = self.collect_mistakes(strong), self.collect_mistakes(simple)
        both = ours.keys() & theirs.keys()
        with_pool, without = (100 * sum(mistakes[row] for row in both) / len(both) for mistakes in (ours, theirs))
        difference = with_pool - without
        errors = f"cross-validated error {with_pool:.1f} % against {without:.1f} %"
        count = len(differences)
        trainings = f"{count} training{'s' if count > 1 else ''} each, on the same {len(both):,} images"
        if p < SIGNIFICANT and difference:
            outcome: Outcome = "helped" if difference < 0 else "harmed"
            did = "help" if difference < 0 else "do harm"
            sentence = f"The unlabelled images {did}: {errors} on the labels alone ({trainings}, p = {p:.2g})."
            return Judgement(outcome, sentence)
        return Judgement(
            "unclear",
            f"Whether the unlabelled images help is unclear: {errors} on the labels alone may be chance ({trainings}).",
        )

    def summarise(self) -> dict[str, Any]:
        """Return the choice for JSON: the candidates with their errors, which one was taken, and why."""
        rows = []
        for candidate in self.candidates:
            estimate = self.estimate(candidate)
            rows.append(
                {
                    "name": candidate.name,
                    "summary": candidate.summary,
                    "trials": len(candidate.trials),
                    "error": None if estimate is None else round(estimate.error, 4),
                    "interval": None if estimate is None else [round(end, 4) for end in estimate.interval],
                }
            )
        return {"chosen": self.chosen, "reason": self.reason, "candidates": rows}

    def _compare_folds(self, first: Candidate, second: Candidate) -> list[float]:
        """Return the difference of the errors on each fold that both were tested on."""
        errors = []
        for candidate in (first, second):
            mistakes = self.collect_mistakes(candidate)
            errors.append(
                {t.fold: np.mean([mistakes[row] for row in self.folds[t.fold].rows]) for t in candidate.trials}
            )
        return [float(errors[0][fold] - errors[1][fold]) for fold in sorted(errors[0].keys() & errors[1].keys())]
