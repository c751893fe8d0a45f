"""The choice among candidates from their held-out predictions, and whether the unlabelled images help."""

import numpy as np
import pytest

from afda.measures import fit_temperature
from afda.runs.selection import Candidate, Fold, Selection, Trial


def make(errors, folds=5, per_fold=10, kinds=None):
    """Return a selection whose candidates misclassify these images of each fold: a list of sets, by name."""
    candidates = []
    for name, wrong in errors.items():
        trials = []
        for fold, missed in enumerate(wrong):
            logits = [[0.0, 1.0] if image in missed else [1.0, 0.0] for image in range(per_fold)]
            trials.append(Trial(fold=fold, logits=logits, seconds=1.0))
        pool = (kinds or {}).get(name, name.startswith("pool"))
        candidates.append(Candidate(name=name, summary="", recipe={}, uses_unlabelled=pool, trials=trials))
    rows = np.arange(folds * per_fold).reshape(folds, per_fold).tolist()
    return Selection(folds=[Fold(rows=part, y=[0] * per_fold) for part in rows], candidates=candidates)


def test_errors_and_their_intervals():
    selection = make({"labels": [{0, 1}, set(), {3}, set(), set()], "pool": []})
    estimate = selection.estimate(selection.find("labels"))
    assert (estimate.wrong, estimate.images, estimate.error) == (3, 50, 6.0)
    assert estimate.interval[0] < 6 < estimate.interval[1]
    assert selection.estimate(selection.find("pool")) is None


def test_only_images_of_both_are_compared():
    selection = make({"labels": [{0, 1, 2}, {0}], "pool": [{0}]})
    excess, noise = selection.compare(selection.find("labels"), selection.find("pool"))
    assert excess == pytest.approx(0.2)
    differences = [0, 1, 1, *[0] * 7]
    assert noise == pytest.approx(np.std(differences, ddof=1) / np.sqrt(10))


def test_the_pool_is_used_if_it_helps():
    selection = make({"labels": [{0, 1, 2}] * 5, "pool": [{0}] * 5})
    chosen, reason = selection.choose()
    assert chosen.name == "pool"
    common = "on the 50 images of both"
    assert reason == f"its error {common} is below that of labels by 20.0 points with a standard error of 5.7"


def test_the_labels_alone_are_kept_if_the_pool_does_harm():
    selection = make({"labels": [{0}] * 5, "pool": [{0, 1}] * 5})
    chosen, reason = selection.choose()
    assert chosen.name == "labels"
    assert "the error of pool on the 50 images of both is higher by 10.0 points" in reason
    assert make({"labels": [{0}] * 5, "pool": [{1}] * 5}).choose()[0].name == "labels"  # no more errors, no fewer


def test_few_labels_do_not_rule_the_pool_out():
    few = {"folds": 2, "per_fold": 10}
    chosen, reason = make({"labels": [{0}, {0}], "pool": [{0, 1}, {0}]}, **few).choose()
    assert chosen.name == "pool"
    assert "too few to tell" in reason
    assert make({"labels": [{0}, {0}], "pool": [{0, 1, 2}, {0, 1}]}, **few).choose()[0].name == "labels"
    # Another one, when the first has been dropped, must be better by more than the noise.
    dropped = {"pool": [set(range(9))]}
    assert make({"labels": [{0}, {0}], **dropped, "pool-b": [{0}, set()]}, **few).choose()[0].name == "labels"
    assert make({"labels": [{0, 1}, {0}], **dropped, "pool-b": [{0}, set()]}, **few).choose()[0].name == "pool-b"


def test_held_out_predictions_never_make_the_model_more_confident():
    selection = make({"labels": [set()] * 5, "pool": [set()] * 5})
    selection.chosen = "labels"
    assert fit_temperature(*selection.collect_held_out()) < 1
    assert selection.fit_temperature() == 1
    assert make({"labels": [], "pool": []}, folds=0).fit_temperature() is None


def test_errors_count_as_among_the_unlabelled_images():
    """Class 1 has half of the labels and a tenth of the unlabelled images."""
    selection = make({"labels": [{0, 1, 2}, {0}], "pool": [{0}, {0, 1}]}, folds=2, kinds={"pool": True})
    selection.folds[1].y = [1] * 10
    for candidate in selection.candidates:
        candidate.trials[1].logits = [row[::-1] for row in candidate.trials[1].logits]
    labels, pool = selection.candidates
    assert selection.compare(labels, pool)[0] == pytest.approx(1 / 20)
    selection.labelled_shares, selection.shares = [0.5, 0.5], [0.9, 0.1]
    weights = np.array([1.8] * 10 + [0.2] * 10)
    differences = np.array([0, 1, 1, *[0] * 7, 0, -1, *[0] * 8])
    assert selection.compare(labels, pool)[0] == pytest.approx((weights * differences).sum() / weights.sum(), abs=1e-8)


def test_of_those_with_the_pool_the_first_is_kept_if_labels_are_too_few_to_tell():
    for folds, chosen in ((4, "pool"), (5, "pool-b")):
        one_less = [{0, 1}, *[{0, 1, 2}] * (folds - 1)]
        errors = {"labels": [{0, 1, 2, 3}] * folds, "pool": [{0, 1, 2}] * folds, "pool-b": one_less}
        assert make(errors, folds=folds).choose()[0].name == chosen
    errors = {"labels": [{0, 1, 2, 3}] * 4, "pool": [{0, 1, 2}] * 4, "pool-b": [set()] * 4}
    assert make(errors, folds=4).choose()[0].name == "pool-b"


def test_of_those_on_the_labels_alone_the_one_with_the_least_error_is_the_best():
    selection = make({"labels": [{0, 1}] * 5, "labels-b": [{0}, *[{0, 1}] * 4], "pool": [set(range(5))] * 5})
    assert selection.choose()[0].name == "labels-b"
    selection = make({"labels": [{0, 1}] * 5, "labels-b": [{2, 3}] * 5, "pool": [set(range(5))] * 5})
    assert selection.choose()[0].name == "labels"


def test_candidates_that_were_dropped_are_not_chosen():
    selection = make({"labels": [{0}] * 5, "pool": [set()] * 2, "pool-b": [set()] * 5})
    assert selection.choose()[0].name == "pool-b"


def test_without_trials_nothing_is_compared():
    selection = make({"labels": [], "pool": []}, folds=0)
    chosen, reason = selection.choose()
    assert chosen.name == "pool"
    assert "cannot be compared" in reason
    assert selection.judge() is None


def test_held_out_predictions_of_the_chosen_candidate():
    selection = make({"labels": [{0}] * 2, "pool": [set()] * 2}, folds=2)
    assert selection.collect_held_out() is None
    selection.chosen = "labels"
    logits, y = selection.collect_held_out()
    assert (logits.argmax(dim=1) != y).sum() == 2
    assert selection.held_out_rows == list(range(20))


def test_a_clear_difference_in_every_fold_is_a_verdict():
    worse = [{0, 1, 2, 3}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2}]
    judgement = make({"labels": worse, "pool": [{0}] * 5}).judge()
    assert judgement.outcome == "helped"
    assert "cross-validated error 10.0 % against 36.0 %" in judgement.sentence
    assert make({"labels": [{0}] * 5, "pool": worse}).judge().outcome == "harmed"


def test_one_fold_decides_nothing():
    judgement = make({"labels": [set(range(10)), *[{0}] * 4], "pool": [{0}] * 5}).judge()
    assert judgement.outcome == "unclear"
    assert "may be chance" in judgement.sentence
