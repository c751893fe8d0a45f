"""The verdict on a run: its error in words, and the comparison with the supervised-only baseline."""

from dataclasses import dataclass
from typing import Literal

from afda.runs.schemas import Result, Scores
from afda.runs.statistics import mcnemar_test, wilson_interval

SIGNIFICANT = 0.05
NOTABLE = 1.0
"""Points between error and balanced error from which on the difference is worth a sentence."""
Outcome = Literal["helped", "harmed", "unclear"]


@dataclass(frozen=True)
class Comparison:
    """The errors of a run beside those of its supervised-only baseline on the same images."""

    error: float
    """The baseline's, in percent."""
    difference: float
    """The run's error minus the baseline's, in percentage points."""
    only_this: int | None
    """Images that the run classifies correctly and the baseline does not; None if that is not recorded."""
    only_baseline: int | None
    p: float | None
    """The p-value of the exact McNemar test."""
    outcome: Outcome
    """`unclear` if the difference may be chance."""
    sentences: list[str]


def describe_error(result: Result) -> list[str]:
    """Return the error of a run in words, with its interval and what limits it."""
    part, scores = result.part, result.scores
    if part is None or scores is None:
        return ["This run was evaluated on neither test nor validation images, so its error is unknown."]
    images, wrong = scores.images, scores.wrong
    low, high = wilson_interval(wrong, images) or (0.0, 100.0)
    sentences = [
        f"{scores.error:.2f} % of the {part} images are misclassified: {wrong:,} of {images:,} "
        f"(95 % interval {low:.1f} to {high:.1f} %)."
    ]
    if abs(scores.balanced_error - scores.error) > NOTABLE:
        more = "more" if scores.balanced_error > scores.error else "less"
        sentences.append(
            f"The balanced error, in which every class counts the same, is {scores.balanced_error:.2f} %: classes with "
            f"few images are misclassified {more} often than the others."
        )
    guessing = 100 * (1 - max(map(sum, scores.confusion)) / images)
    if high >= guessing:
        sentences.append(
            f"That is no better than always predicting the most frequent class ({guessing:.1f} %): train longer, or "
            "give more labels."
        )
    if part == "validation":
        sentences.append(
            "There is no test set, or it was not opened. The error on validation images is optimistic if settings were "
            "chosen on them."
        )
    return sentences


def describe_comparison(result: Result, baseline: Result) -> str:
    """Return in words whether the unlabelled images helped a run, from its result and that of its baseline."""
    comparison = compare_results(result, baseline)
    if comparison is None:
        return "There are no test or validation images, so it is unknown whether the unlabelled images helped."
    return " ".join(comparison.sentences[:2])


def compare_results(result: Result, baseline: Result) -> Comparison | None:
    """Compare a run with its baseline; None if they were not evaluated on the same images."""
    part, scores, others = result.part, result.scores, baseline.scores
    if part is None or scores is None or others is None or part != baseline.part:
        return None
    difference = scores.error - others.error
    only_this, only_baseline = count_disagreements(scores, others)
    p = None if only_this is None or only_baseline is None else mcnemar_test(only_this, only_baseline)
    outcome: Outcome = "unclear"
    if p is not None and p < SIGNIFICANT:
        outcome = "helped" if difference < 0 else "harmed"
    sentences = [
        f"The supervised-only baseline, with the same {result.labels:,} labels, has a {part} error of "
        f"{others.error:.2f} %.",
        describe_difference(difference, p, part, scores.images),
    ]
    if p is not None and difference:
        value = f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"
        sentences.append(
            f"{(only_this or 0) + (only_baseline or 0):,} images are classified correctly by only one of the two, "
            f"{only_this:,} of them by this run (exact McNemar test, {value})."
        )
    return Comparison(others.error, difference, only_this, only_baseline, p, outcome, sentences)


def count_disagreements(scores: Scores, others: Scores) -> tuple[int, int] | tuple[None, None]:
    """Return how many images only the first, and only the second, classifies correctly, if that is recorded."""
    if scores.misclassified is None or others.misclassified is None:
        return None, None
    first, second = set(scores.misclassified), set(others.misclassified)
    return len(second - first), len(first - second)


def describe_difference(difference: float, p: float | None, part: str, images: int) -> str:
    """Return in words whether the unlabelled images changed the error."""
    if difference == 0:
        return f"The unlabelled images made no difference to the number of errors on these {images:,} images."
    points = f"{abs(difference):.2f} points {'fewer' if difference < 0 else 'more'} errors"
    if p is None:
        return (
            f"With the unlabelled images there are {points}; without the predictions of both runs it cannot be said "
            "whether that is more than chance."
        )
    if p >= SIGNIFICANT:
        return f"Whether the unlabelled images helped is unclear: {points} may be chance."
    did = "helped" if difference < 0 else "did harm"
    return f"The unlabelled images {did}: {points}, more than the choice of {part} images explains."
