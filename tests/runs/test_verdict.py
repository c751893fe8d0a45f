import pytest

from afda.runs.schemas import Result, Scores
from afda.runs.verdict import compare_results, compare_seeds, describe_comparison, describe_error


def make_result(wrong, *, images=100, recorded=True, part="test"):
    """Return a result with these images misclassified, of two equally large classes."""
    first = sum(i < images // 2 for i in wrong)
    confusion = [[images // 2 - first, first], [len(wrong) - first, images // 2 - len(wrong) + first]]
    error = 100 * len(wrong) / images
    scores = Scores(
        error=error,
        class_errors={"a": None, "b": None},
        confusion=confusion,
        misclassified=list(wrong) if recorded else None,
    )
    errors = {"test_error": None, "val_error": None}
    if part != "cross_validation":
        errors[{"test": "test_error", "validation": "val_error"}[part]] = error
    return Result(**errors, mmd2=None, labels=20, unlabelled=80, seconds=1.0, images_per_second=1.0, **{part: scores})


def make_results(*counts, part="test"):
    """Return results with these numbers of misclassified images of 100, as of several seeds."""
    return [make_result(range(count), part=part) for count in counts]


@pytest.mark.parametrize(
    ("wrong", "baseline", "words", "test"),
    [
        (range(5), range(30), "is unclear: there are 25.00 points fewer errors, but one", "hardly explains that"),
        (range(30), range(5), "is unclear: there are 25.00 points more errors, but one", "hardly explains that"),
        (range(5), range(3, 10), "is unclear: there are 2.00 points fewer errors, but one", "could explain that"),
        (range(5), range(5, 10), "Both make equally many errors on these 100 images; one training per side", None),
    ],
)
def test_one_training_per_side_cannot_tell(wrong, baseline, words, test):
    comparison = compare_results(make_result(wrong), make_result(baseline))
    assert comparison.outcome == "unclear"
    assert comparison.only_this == len(set(baseline) - set(wrong))
    assert comparison.only_baseline == len(set(wrong) - set(baseline))
    assert words in comparison.sentences[1]
    assert "several seeds" in comparison.sentences[2]
    assert len(comparison.sentences) == (3 if test is None else 4)
    assert (test or "") in comparison.sentences[-1]
    assert describe_comparison(make_result(wrong), make_result(baseline)) == " ".join(comparison.sentences[:3])


def test_without_recorded_mistakes_there_is_no_test():
    comparison = compare_results(make_result(range(5), recorded=False), make_result(range(30)))
    assert (comparison.p, comparison.outcome, comparison.difference) == (None, "unclear", -25.0)
    assert len(comparison.sentences) == 3


@pytest.mark.parametrize(
    ("counts", "baselines", "outcome", "words"),
    [
        ((10, 11, 12), (20, 22, 21), "helped", "images helped: 10.00 points fewer errors, more than the difference"),
        ((20, 22, 21), (10, 11, 12), "harmed", "images did harm: 10.00 points more errors, more than the difference"),
        ((10, 18, 26), (20, 22, 21), "unclear", "is unclear: 3.00 points fewer errors may be chance."),
        ((10, 10), (11, 11), "unclear", "is unclear: 1.00 points fewer errors may be chance."),
        ((10, 12), (12, 10), "unclear", "made no difference to the mean error."),
    ],
)
def test_several_seeds_per_side(counts, baselines, outcome, words):
    comparison = compare_seeds(make_results(*counts), make_results(*baselines))
    assert (comparison.outcome, comparison.error) == (outcome, sum(baselines) / len(baselines))
    assert comparison.difference == pytest.approx(sum(counts) / len(counts) - comparison.error)
    assert (comparison.p < 0.05) == (outcome != "unclear")
    assert f"over {len(baselines)} seeds of the supervised-only baseline" in comparison.sentences[0]
    assert words in comparison.sentences[1]
    assert "Welch" in comparison.sentences[2]


def test_seeds_are_compared_if_there_are_several_on_both_sides_and_all_on_the_same_images():
    assert compare_seeds(make_results(10, 11), make_results(20)) is None
    assert compare_seeds(make_results(10), make_results(20, 21)) is None
    assert compare_seeds(make_results(10, 11), make_results(20, 21, part="validation")) is None
    cross_validated = make_results(10, 11, part="cross_validation")
    assert compare_seeds(cross_validated, cross_validated) is None
    assert compare_results(cross_validated[0], cross_validated[1]) is None


def test_results_on_other_images_are_not_compared():
    assert compare_results(make_result(range(5)), make_result(range(5), part="validation")) is None
    assert "unknown" in describe_comparison(make_result(range(5)), make_result(range(5), part="validation"))


def test_error_in_words():
    (sentence,) = describe_error(make_result(range(5)))
    assert sentence == "5.00 % of the test images are misclassified: 5 of 100 (95 % interval 2.2 to 11.2 %)."
    first, guess = describe_error(make_result(range(45)))
    assert "no better than always predicting the most frequent class (50.0 %)" in guess
    first, optimistic = describe_error(make_result(range(5), part="validation"))
    assert "validation images" in first
    assert "optimistic" in optimistic
    first, reserved = describe_error(make_result(range(5), part="cross_validation"))
    assert first.startswith("5.00 % of the labelled images are misclassified by trainings without their labels: 5 of")
    assert "too high, because it was measured with fewer labels, and mostly shorter trainings," in reserved


@pytest.mark.parametrize(
    ("confusion", "words"),
    [
        ([[90, 0], [5, 5]], "The balanced error, in which every class counts the same, is 25.00 %: classes with few"),
        ([[70, 20], [0, 10]], "images are misclassified less often than the others."),
        ([[88, 2], [0, 10]], None),
    ],
)
def test_a_balanced_error_that_differs_is_worth_a_sentence(confusion, words):
    wrong = confusion[0][1] + confusion[1][0]
    scores = Scores(error=float(wrong), class_errors={"a": None, "b": None}, confusion=confusion)
    result = make_result([]).model_copy(update={"test": scores})
    assert ("balanced" in " ".join(describe_error(result))) == (words is not None)
    assert (words or "") in " ".join(describe_error(result))
