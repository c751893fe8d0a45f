"""The verdict of a selection, on made-up trials."""

import numpy as np
import pytest

from afda.errors import UserError
from afda.runs.directory import SELECTION, Run
from afda.runs.selection import Candidate, Fold, Selection, Trial


def make_selection(mistakes, uses_unlabelled, folds):
    """Return a selection of candidates that misclassify images of two classes where `mistakes` says so, by rows."""
    rows = np.array_split(np.arange(mistakes.shape[1]), folds)
    candidates = [
        Candidate(
            name=f"candidate {i}",
            summary="",
            recipe={},
            uses_unlabelled=pool,
            trials=[
                Trial(fold=k, logits=np.eye(2)[wrong[r].astype(int)].tolist(), seconds=0.0) for k, r in enumerate(rows)
            ],
        )
        for i, (wrong, pool) in enumerate(zip(mistakes, uses_unlabelled, strict=True))
    ]
    return Selection(folds=[Fold(rows=r.tolist(), y=[0] * len(r)) for r in rows], candidates=candidates)


def draw_mistakes(random, candidates, folds, size, error):
    """Return mistakes of equally good candidates: images are more or less hard, and every training has noise."""
    hard = random.beta(error, 1 - error, (1, folds * size)).clip(1e-9, 1 - 1e-9)
    noise = np.repeat(random.normal(0, 0.4, (candidates, folds)), size, axis=1)
    return random.random((candidates, folds * size)) < 1 / (1 + (1 / hard - 1) * np.exp(-noise))


@pytest.mark.parametrize("kinds", [(False, True), (False, False, True, True, True)])
@pytest.mark.parametrize(("folds", "size"), [(2, 5), (2, 10), (2, 40), (3, 10), (5, 2), (5, 10), (5, 40)])
def test_equal_candidates_are_rarely_told_apart(folds, size, kinds):
    """The rate of false alarms is at most 5 %, also with many candidates and with few folds of few images."""
    random = np.random.default_rng(0)
    pairs = 300
    alarms = sum(
        make_selection(draw_mistakes(random, len(kinds), folds, size, 0.2), kinds, folds).judge().outcome != "unclear"
        for _ in range(pairs)
    )
    assert alarms <= 0.05 * pairs


@pytest.mark.parametrize(("better", "outcome", "words"), [(1, "helped", "images help: "), (0, "harmed", "do harm: ")])
def test_a_clear_difference_is_found(better, outcome, words):
    random = np.random.default_rng(0)
    mistakes = np.stack([random.random(100) < (0.05 if i == better else 0.4) for i in range(2)])
    judgement = make_selection(mistakes, (False, True), 5).judge()
    assert judgement.outcome == outcome
    assert words in judgement.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"chosen": "another"},
        {"folds": [{"rows": [0, 1], "y": [0]}, {"rows": [2, 3], "y": [0, 0]}]},
        {"folds": [{"rows": [0, 1], "y": [0, 0]}]},
        {"folds": [{"rows": [0], "y": [0]}, {"rows": [2, 3], "y": [0, 0]}]},
        {"folds": [{"rows": [0, 1], "y": [0, 2]}, {"rows": [2, 3], "y": [0, 0]}]},
        {"candidates": []},
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(tmp_path, change):
    selection = make_selection(np.zeros((2, 4), dtype=bool), (False, True), 2)
    run = Run(tmp_path)
    run.write_json(SELECTION, {**selection.model_dump(), **change})
    with pytest.raises(UserError, match=SELECTION):
        run.read_selection()
