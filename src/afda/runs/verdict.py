"""The verdict on a run: its error in words, and the comparison with the supervised-only baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from afda.runs.schemas import Part, Result, Scores
from afda.runs.selection import SIGNIFICANT, Outcome
from afda.runs.statistics import mcnemar_test, welch_t_test, wilson_interval

NOTABLE = 1.0
"""Points between error and balanced error from which on the difference is worth a sentence."""
MEASURED_ON: dict[Part, str] = {
    "test": "test images are misclassified",
    "validation": "validation images are misclassified",
    "cross-validation": "labelled images are misclassified by trainings without their labels",
}
RESERVATIONS: dict[Part, str] = {
    "validation": (
        "There is no test set, or it was not opened. The error on validation images is optimistic if settings were "
        "chosen on them."
    ),
    "cross-validation": (
        "There is no test set, so this is the cross-validated error. It is a little too high, because it was measured "
        "with fewer labels, and mostly shorter trainings, than the final model had; and a little too low, because it "
        "is the best of several."
    ),
}
ADVICE = (
    "Train both with several seeds (--seed) and give all runs to afda report; with own data, --method auto compares "
    "several trainings by cross-validation."
)


@dataclass(frozen=True)
class Comparison:
    """The errors of a run, or of several that differ by the seed, beside those of the supervised-only baseline."""

    error: float
    """The baseline's, in percent; the mean over seeds."""
    difference: float
    """The run's error minus the baseline's, in percentage points; of means over seeds."""
    only_this: int | None
    """Images that the run classifies correctly and the baseline does not; None for several seeds, or not recorded."""
    only_baseline: int | None
    p: float | None
    """The p-value of Welch's t-test over seeds. For one training per side, that of the exact McNemar test, which is
    about the choice of images only."""
    outcome: Outcome
    """`unclear` if the difference may be chance, as it always may with one training per side."""
    sentences: list[str]


def describe_error(result: Result) -> list[str]:
    """Return the error of a run in words, with its interval and what limits it."""
    part, scores = result.part, result.scores
    if part is None or scores is None:
        return ["This run was evaluated on neither test nor validation images, so its error is unknown."]
    images, wrong = scores.images, scores.wrong
    low, high = wilson_interval(wrong, images) or (0.0, 100.0)
    sentences = [
        f"{scores.error:.2f} % of the {MEASURED_ON[part]}: {wrong:,} of {images:,} "
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
    if part in RESERVATIONS:
        sentences.append(RESERVATIONS[part])
    return sentences


def describe_comparison(result: Result, baseline: Result) -> str:
    """Return in words whether the unlabelled images helped a run, from its result and that of its baseline."""
    comparison = compare_results(result, baseline)
    if comparison is None:
        return "There are no test or validation images, so it is unknown whether the unlabelled images helped."
    return " ".join(comparison.sentences[:3])


def compare_results(result: Result, baseline: Result) -> Comparison | None:
    """Compare one training with one of its baseline; None if they were not evaluated on the same images.

    The outcome is unclear, whatever the difference: two trainings that differ by nothing but the seed often differ by
    more than the choice of images explains, and one of a kind says nothing about that.
    """
    part, scores, others = find_common_part(result, baseline), result.scores, baseline.scores
    if part is None or scores is None or others is None:
        return None
    difference = scores.error - others.error
    only_this, only_baseline = count_disagreements(scores, others)
    sentences = [
        f"The supervised-only baseline, with the same {result.labels:,} labels, has a {part} error of "
        f"{others.error:.2f} %.",
        describe_single_difference(difference, scores.images),
        ADVICE,
    ]
    p = None
    if only_this is not None and only_baseline is not None:
        p = mcnemar_test(only_this, only_baseline)
        if difference:
            sentences.append(describe_disagreements(only_this, only_baseline, p))
    return Comparison(others.error, difference, only_this, only_baseline, p, "unclear", sentences)


def compare_seeds(results: Sequence[Result], baselines: Sequence[Result]) -> Comparison | None:
    """Compare trainings with several seeds with several of the baseline.

    None with fewer than two on a side, or if they were not all evaluated on test images, or all on validation images.
    """
    if min(len(results), len(baselines)) < 2 or any(
        find_common_part(results[0], other) is None for other in (*results, *baselines)
    ):
        return None
    part = results[0].part
    ours, theirs = ([one.scores for one in side if one.scores is not None] for side in (results, baselines))
    errors, others = ([scores.error for scores in side] for side in (ours, theirs))
    p = welch_t_test(errors, others, 100 / min(scores.images for scores in (*ours, *theirs)))
    difference = mean(errors) - mean(others)
    outcome: Outcome = "unclear"
    if p < SIGNIFICANT and difference:
        outcome = "helped" if difference < 0 else "harmed"
    sentences = [
        f"The mean {part} error is {mean(errors):.2f} % over {len(errors)} seeds, and {mean(others):.2f} % over "
        f"{len(others)} seeds of the supervised-only baseline.",
        describe_mean_difference(difference, outcome),
        f"That counts trainings, not images (Welch's t-test, {format_p(p)}).",
    ]
    return Comparison(mean(others), difference, None, None, p, outcome, sentences)


def find_common_part(result: Result, baseline: Result) -> Part | None:
    """Return what both were evaluated on, or None if that differs.

    Cross-validation is not compared here: the candidates of one selection are (`Selection.judge`).
    """
    return result.part if result.part == baseline.part and result.part in ("test", "validation") else None


def count_disagreements(scores: Scores, others: Scores) -> tuple[int, int] | tuple[None, None]:
    """Return how many images only the first, and only the second, classifies correctly, if that is recorded."""
    if scores.misclassified is None or others.misclassified is None:
        return None, None
    first, second = set(scores.misclassified), set(others.misclassified)
    return len(second - first), len(first - second)


def describe_single_difference(difference: float, images: int) -> str:
    """Return in words the difference between one training and one of the baseline."""
    if difference == 0:
        return (
            f"Both make equally many errors on these {images:,} images; one training per side cannot tell whether the "
            "unlabelled images help."
        )
    return (
        f"Whether the unlabelled images helped is unclear: there are {format_points(difference)}, but one training per "
        "side cannot tell, because trainings with other seeds differ as well."
    )


def describe_mean_difference(difference: float, outcome: Outcome) -> str:
    """Return in words whether the unlabelled images changed the mean error over seeds."""
    if difference == 0:
        return "The unlabelled images made no difference to the mean error."
    points = format_points(difference)
    if outcome == "unclear":
        return f"Whether the unlabelled images helped is unclear: {points} may be chance. More seeds tell more."
    did = "helped" if outcome == "helped" else "did harm"
    return f"The unlabelled images {did}: {points}, more than the difference between seeds explains."


def describe_disagreements(only_this: int, only_baseline: int, p: float) -> str:
    """Return in words what the choice of images explains of a difference."""
    explains = "could explain" if p >= SIGNIFICANT else "hardly explains"
    return (
        f"{only_this + only_baseline:,} images are classified correctly by only one of the two, {only_this:,} of them "
        f"by this run: the choice of images {explains} that (exact McNemar test, {format_p(p)})."
    )


def format_points(difference: float) -> str:
    """Return a difference between errors in words."""
    return f"{abs(difference):.2f} points {'fewer' if difference < 0 else 'more'} errors"


def format_p(p: float) -> str:
    """Return a p-value for the end of a sentence."""
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"
