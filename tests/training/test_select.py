"""The automatic choice: folds, trials, dropping, and continuing after a stop."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from afda.data.arrays import from_arrays
from afda.data.images import Images
from afda.recipe import Recipe
from afda.recipes.candidates import ESTIMATED_SHARES, list_candidates
from afda.runs.selection import Trial
from afda.training import select
from afda.training.select import begin_selection, list_racing, make_folds, run_trials
from contract import CPU


@pytest.fixture
def blobs():
    """Three clusters with four labels each."""
    rng = np.random.default_rng(0)
    truth = np.arange(90) % 3
    x = rng.normal(size=(90, 5)) + 4 * np.eye(3, 5)[truth]
    y = np.where(np.arange(90) < 12, truth, -1)
    return from_arrays(x.astype(np.float32), y)


def begin_small(data, *settings):
    found = list_candidates(data, settings=("steps=20", "seed=1", *settings))
    return begin_selection(found, data, 0.5)


def test_folds_are_disjoint_and_spread_the_classes():
    labelled = np.arange(0, 60, 3)
    y = np.arange(60) % 7
    folds = make_folds(labelled, y, seed=0)
    rows = np.concatenate(folds)
    assert sorted(rows) == sorted(set(rows.tolist()))
    assert set(rows.tolist()) <= set(labelled.tolist())
    assert max(map(len, folds)) - min(map(len, folds)) <= 2
    for fold in folds:  # every class keeps a label
        assert set(y[np.setdiff1d(labelled, fold)]) == set(y[labelled])
    assert all((a == b).all() for a, b in zip(folds, make_folds(labelled, y, seed=0), strict=True))


def test_two_labels_of_a_class_are_never_held_out_together():
    y = np.repeat(np.arange(10), 2)
    for fold in make_folds(np.arange(20), y, seed=3):
        assert len(set(y[fold])) == len(fold)


def test_the_only_label_of_a_class_is_not_held_out():
    y = np.array([0, 0, 0, 1])
    assert 3 not in np.concatenate(make_folds(np.arange(4), y, seed=0))
    assert make_folds(np.arange(3), np.arange(3), seed=0) == []


def test_groups_stay_together():
    y, groups = np.arange(40) % 2, np.arange(40) // 4
    fold_of = {row: k for k, fold in enumerate(make_folds(np.arange(40), y, 0, groups)) for row in fold.tolist()}
    for group in range(10):
        assert len({fold_of[row] for row in range(4 * group, 4 * group + 4)}) == 1


def test_groups_of_several_classes_leave_every_class_a_label():
    rng = np.random.default_rng(0)
    for seed in range(20):
        groups, y = rng.integers(0, 6, 40), rng.integers(0, 4, 40)
        folds = make_folds(np.arange(40), y, seed, groups)
        for fold in folds:
            others = np.setdiff1d(np.arange(40), fold)
            assert set(y[others]) == set(y)
            assert not set(groups[fold]) & set(groups[others])


def test_of_many_labels_folds_have_all_classes():
    y = np.repeat(np.arange(10), 500)
    folds = make_folds(np.arange(5000), y, seed=0)
    assert sum(map(len, folds)) == 2000
    for fold in folds:
        assert np.bincount(y[fold], minlength=10).tolist() == [40] * 10


def test_a_trial_does_not_see_the_labels_of_its_fold(blobs, monkeypatch):
    selection = begin_small(blobs)
    seen = []

    def spy(recipe, data, runtime):
        seen.append(data)
        return begin(recipe, data, runtime)

    begin = select.begin
    monkeypatch.setattr(select, "begin", spy)
    select.run_trial(selection, selection.candidates[0], 0, blobs, CPU)
    (data,) = seen
    held = torch.tensor(selection.folds[0].rows)
    assert (data.train.y[held] == -1).all()
    assert (data.train.y >= 0).sum() == 12 - len(held)
    assert data.test is None
    assert data.val is None


def test_candidates_are_compared_and_one_is_chosen(blobs):
    selection = begin_small(blobs)
    done = []
    run_trials(selection, blobs, CPU, on_trial=lambda trial: done.append((trial.done, trial.candidate)))
    assert [candidate.name for candidate in selection.candidates][:3] == [
        "linear",
        "supervised",
        "afda",
    ]  # not with estimated shares: they are even
    assert [number for number, _ in done] == list(range(1, len(done) + 1))
    assert selection.chosen is not None
    assert selection.reason
    assert all(len(row) == 3 for trial in selection.candidates[0].trials for row in trial.logits)


def test_a_stopped_comparison_continues_where_it_was(blobs):
    whole, parts = begin_small(blobs), begin_small(blobs)
    run_trials(whole, blobs, CPU)
    stop = threading.Event()

    def stop_soon(trial):
        if trial.done == 7:
            stop.set()

    with pytest.raises(KeyboardInterrupt):
        run_trials(parts, blobs, CPU, on_trial=stop_soon, stop=stop)
    assert parts.chosen is None
    parts = type(parts).model_validate_json(parts.model_dump_json())
    run_trials(parts, blobs, CPU)
    without_time = [
        [[(trial.fold, trial.logits) for trial in candidate.trials] for candidate in selection.candidates]
        for selection in (whole, parts)
    ]
    assert without_time[0] == without_time[1]
    assert (whole.chosen, whole.reason) == (parts.chosen, parts.reason)


def test_no_fold_begins_without_time_for_it(blobs):
    selection = begin_small(blobs)
    selection.seconds = 1e-9
    run_trials(selection, blobs, CPU)
    assert all(len(candidate.trials) == 1 for candidate in selection.candidates)
    assert selection.chosen is not None


def test_a_candidate_that_is_clearly_worse_is_dropped(blobs):
    selection = begin_small(blobs)
    for candidate in selection.candidates:
        for fold in range(3):
            wrong = candidate.name == "vat"
            logits = [[0.0 if (k == y) == wrong else 1.0 for k in range(3)] for y in selection.folds[fold].y]
            candidate.trials.append(Trial(fold=fold, logits=logits, seconds=1.0))
    assert "vat" not in {candidate.name for candidate in list_racing(selection, 2)}
    assert len(list_racing(selection, 1)) == len(selection.candidates)


def test_the_users_own_method_is_only_compared(blobs):
    found = [one for one in list_candidates(blobs, settings=("steps=20",)) if one[0] in ("supervised", "vat")]
    selection = begin_selection(found, blobs, 0.5, chosen="vat")
    run_trials(selection, blobs, CPU)
    assert selection.chosen == "vat"
    assert selection.read_chosen() == found[1][2]


def test_candidates_with_a_net_and_settings_of_the_users(blobs):
    found = list_candidates(blobs, settings=("net=mlp", "net.hidden=8", "align.weight=0.5"), align="mmd")
    assert [name for name, _, _ in found] == ["supervised", ESTIMATED_SHARES, "afda", "vat"]
    recipes = {name: recipe for name, _, recipe in found}
    assert recipes["afda"].align.name() == "mmd"
    assert recipes["afda"].align.weight == 0.5
    assert recipes["vat"].align is None
    assert {recipe.net.hidden for recipe in recipes.values()} == {8}


def test_without_alignment_no_candidate_is_called_aligned(blobs):
    assert [name for name, _, _ in list_candidates(blobs, align="none")] == [
        *("linear", "supervised", "vat+entropy-estimated-shares", "vat+entropy", "vat")
    ]
    photos = replace(blobs, train=Images(torch.zeros(90, 3, 20, 20, dtype=torch.uint8), blobs.train.y))
    assert [name for name, _, _ in list_candidates(photos, align="none")] == ["linear", "supervised", "fixmatch"]
    assert [name for name, _, _ in list_candidates(photos)][2:] == ["fixmatch-aligned", "fixmatch"]


def test_without_unlabelled_images_only_the_labels_count(blobs):
    y = torch.arange(len(blobs.train)) % 3
    data = replace(blobs, train=Images(blobs.train.x, y))
    assert [name for name, _, _ in list_candidates(data)] == ["linear", "supervised"]


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_estimated_shares_are_a_candidate_where_they_are_uneven(share):
    rng = np.random.default_rng(0)
    truth = np.concatenate([[0] * 10, [1] * 10, (rng.random(300) > share).astype(int)])
    x = rng.normal(size=(320, 3)) + 5 * truth[:, None]
    data = from_arrays(x.astype(np.float32), np.where(np.arange(320) < 20, truth, -1))
    selection = begin_small(data)
    run_trials(selection, data, CPU)
    if share == 0.5:
        assert selection.shares is None
        assert ESTIMATED_SHARES not in {candidate.name for candidate in selection.candidates}
    else:
        assert selection.shares[0] == pytest.approx(0.9, abs=0.08)
        recipe = Recipe.of(selection.find(ESTIMATED_SHARES).recipe)
        assert recipe.pool_shares == tuple(selection.shares)
