import pytest

from afda.runs.schemas import Result, Scores
from afda.runs.verdict import compare_results, describe_comparison, describe_error


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
    errors = {"test_error": None, "val_error": None, {"test": "test_error", "validation": "val_error"}[part]: error}
    return Result(**errors, mmd2=None, labels=20, unlabelled=80, seconds=1.0, images_per_second=1.0, **{part: scores})


@pytest.mark.parametrize(
    ("wrong", "baseline", "outcome", "words"),
    [
        (range(5), range(30), "helped", "The unlabelled images helped: 25.00 points fewer errors"),
        (range(30), range(5), "harmed", "The unlabelled images did harm: 25.00 points more errors"),
        (range(5), range(3, 10), "unclear", "is unclear: 2.00 points fewer errors may be chance."),
        (range(5), range(5, 10), "unclear", "made no difference to the number of errors on these 100 images."),
    ],
)
def test_outcomes(wrong, baseline, outcome, words):
    comparison = compare_results(make_result(wrong), make_result(baseline))
    assert comparison.outcome == outcome
    assert comparison.only_this == len(set(baseline) - set(wrong))
    assert comparison.only_baseline == len(set(wrong) - set(baseline))
    assert words in comparison.sentences[1]
    assert describe_comparison(make_result(wrong), make_result(baseline)) == " ".join(comparison.sentences[:2])


def test_without_recorded_mistakes_chance_is_left_open():
    comparison = compare_results(make_result(range(5), recorded=False), make_result(range(30)))
    assert (comparison.p, comparison.outcome, comparison.difference) == (None, "unclear", -25.0)
    assert "cannot be said" in comparison.sentences[1]


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
