"""The summary of the quality suite against numbers computed by hand."""

import pytest

from afda.experiments.quality.cells import Score
from afda.experiments.quality.summary import Harm, Interval, build_rows, select_reporting, summarise
from afda.experiments.quality.tables import describe_rows, describe_summary, format_duels, format_rows

ERRORS = {
    ("iris", 2): {
        "ours": [10, 12, 14],
        "supervised": [20, 22, 24],
        "logistic": [9, 13, 11],
        "label_spreading": [12, 12, 12],
        "self_training": [30, 30, 30],
    },
    ("iris", 5): {
        "ours": [4, 4, 4],
        "supervised": [5, 5, 8],
        "logistic": [5, 5, 5],
        "label_spreading": [6, 6, 6],
        "self_training": [5, 5, 8],
    },
    ("wine", 2): {
        "ours": [6, 6, 6],
        "supervised": [5, 5, 5],
        "logistic": [8, 8, 8],
        "label_spreading": [7, 7, 7],
        "self_training": [9, 9, 9],
    },
}


def make_scores(errors):
    return [
        Score(name, labels, seed, method, error=error, balanced_error=2 * error, seconds=1, version="1")
        for (name, labels), methods in errors.items()
        for method, values in methods.items()
        for seed, error in enumerate(values)
    ]


@pytest.fixture
def rows():
    return build_rows(make_scores(ERRORS))


def test_rows(rows):
    assert rows[0].to_dict() == {
        "set": "iris",
        "labels_per_class": 2,
        "seeds": 3,
        "ours": 12,
        "afda": None,
        "supervised": 22,
        "logistic": 11,
        "label_spreading": 12,
        "self_training": 30,
        "best": "logistic",
        "role": "tuning",
        "balanced_errors": {
            "ours": 24,
            "supervised": 44,
            "logistic": 22,
            "label_spreading": 24,
            "self_training": 60,
        },
    }


def test_means_are_over_the_seeds_that_all_methods_have():
    scores = [s for s in make_scores(ERRORS) if (s.set, s.method, s.seed) != ("iris", "logistic", 2)]
    row = build_rows(scores)[0]
    assert (row.seeds, row.errors["ours"], row.errors["logistic"]) == (2, 11, 11)
    only = [s for s in scores if s.seed == 2 or s.method != "ours"]
    assert [row.set for row in build_rows(only)] == ["wine"]
    assert build_rows([]) == []


def test_intervals():
    """Student's t with 2 degrees of freedom is 4.3027; the differences 1, 3, 5 have the standard deviation 2."""
    interval = Interval.of([1, 3, 5])
    assert interval.mean == 3
    assert interval.high - 3 == pytest.approx(4.3027 * 2 / 3**0.5, abs=1e-3)
    assert 3 - interval.low == pytest.approx(interval.high - 3)
    assert [Interval.of(values).sign for values in ([1, 3, 5], [-1, -1, -1], [2, 2.1, 2.2], [0, 0], [-3])] == [
        *(0, -1, 1, 0, 0)
    ]
    assert Interval.of([-3]) == Interval(-3)


def test_the_summary(rows):
    summary = summarise(rows)
    assert summary.cells == 3
    # iris 2: 12 against 22; iris 5: 4 against 6; wine 2: 6 against 5
    assert summary.relative_reduction == pytest.approx(100 * (10 / 22 + 2 / 6 - 1 / 5) / 3)
    assert summary.reduction_of_mean == pytest.approx(100 * (1 - 22 / 33))
    assert summary.better_than_semi_supervised == pytest.approx(200 / 3)
    assert summary.no_worse_than_semi_supervised == 100
    assert summary.worst_harm == {2: Harm("iris", 1), 5: Harm("iris", -1)}
    duel = summary.duels["supervised"]
    assert (duel.wins, duel.ties, duel.losses, duel.lower, duel.equal) == (1, 1, 1, 2, 0)
    assert duel.difference == Interval.of([(-10 - 1 + 1) / 3, (-10 - 1 + 1) / 3, (-10 - 4 + 1) / 3])
    assert (summary.duels["label_spreading"].lower, summary.duels["label_spreading"].equal) == (2, 1)
    assert "afda" not in summary.duels


def test_no_error_of_supervised_training():
    scores = make_scores({("iris", 2): {"ours": [0], "supervised": [0]}, ("iris", 5): {"ours": [1], "supervised": [0]}})
    assert summarise(build_rows(scores)).relative_reduction == -50


def test_reporting_sets_are_summarised_alone(rows):
    assert [row.set for row in select_reporting(rows)] == ["wine"]
    assert [(title, summary.cells) for title, summary in describe_rows(rows)] == [
        ("All sets", 3),
        ("Sets on which no setting was chosen", 1),
    ]
    assert [title for title, _ in describe_rows(rows[:2])] == ["All sets"]


def test_texts(rows):
    header, first, *_ = format_rows(rows)
    assert "AFDA" not in header
    assert first == ["iris", "2", "3", "12.0", "22.0", "11.0*", "12.0", "30.0"]
    summary = summarise(rows)
    assert format_duels(summary)[1][:5] == ["supervised-only", "1", "1", "1", "2 of 3"]
    assert describe_summary(summary) == [
        "Error relative to supervised-only: -19.6 % on average over 3 cells; -33.3 % for the mean error.",
        "Better than both LabelSpreading and SelfTraining in 67 % of the cells, no worse in 100 %.",
        "Worst harm against the better of supervised-only and logistic regression, in points: +1.0 (iris) with 2, "
        "-1.0 (iris) with 5 labels per class.",
    ]


def test_nothing_is_said_about_ours_where_it_was_not_run():
    scores = [score for score in make_scores(ERRORS) if score.method != "ours"]
    rows = build_rows(scores)
    assert describe_rows(rows) == []
    assert summarise(rows).worst_harm == {}
