"""The report of a run whose method was chosen by cross-validation."""

import numpy as np
import pytest
import torch

from afda.data import load
from afda.report.collect import collect_report
from afda.runs.directory import SELECTION, Run


def test_the_panel_has_all_candidates(chosen_content, chosen_run):
    panel, selection = chosen_content.runs[0].selection, Run(chosen_run).read_selection()
    assert [(c.name, c.trainings) for c in panel.candidates] == [(c.name, len(c.trials)) for c in selection.candidates]
    assert (panel.chosen, panel.reason, panel.folds) == (selection.chosen, selection.reason, len(selection.folds))
    assert panel.judgement == selection.judge()
    assert panel.judgement.sentence in chosen_content.summary
    for row, candidate in zip(panel.candidates, selection.candidates, strict=True):
        assert row.error == selection.estimate(candidate).error
        assert row.interval[0] <= row.error <= row.interval[1]


def test_runs_without_a_selection_have_no_panel(content):
    assert [run.selection for run in content.runs] == [None, None]


def test_the_error_and_the_mistakes_are_those_of_held_out_images(chosen_content, chosen_run):
    (run,), selection = chosen_content.runs, Run(chosen_run).read_selection()
    mistakes = selection.collect_mistakes(selection.find(selection.chosen))
    assert (run.part, run.error_metric) == ("cross-validation", "cross_validated_error")
    assert (run.wrong, run.images) == (sum(mistakes.values()), len(mistakes))
    assert run.results["cross_validated_error"] == run.error == pytest.approx(100 * np.mean(list(mistakes.values())))
    assert sum(map(sum, run.confusion)) == run.images
    data = load(Run(chosen_run).read_environment().source)
    wrong = {data.train.name(row) for row, is_wrong in mistakes.items() if is_wrong}
    assert run.mistakes.count == len(wrong) > 0
    assert set(run.mistakes.names) <= wrong
    assert run.calibration.before.accuracy == pytest.approx(100 - run.error)
    assert run.calibration.fitted_to == "held-out predictions for labelled images"
    assert "trainings without their labels" in run.verdict[0]
    assert run.missing == []


def test_pictures_of_mistakes_are_those_of_the_training_images(chosen_content, chosen_run):
    """Mistakes and embedding show the same image under the same number."""
    (run,) = chosen_content.runs
    numbers = dict(zip(run.embedding.names, run.embedding.pictures, strict=True))
    assert run.mistakes.pictures == [numbers[name] for name in run.mistakes.names]


@pytest.mark.parametrize("change", ["rows", "y", "gone"])
def test_held_out_predictions_of_other_data_are_left_out(chosen_run, copy_run, machine, tmp_path, change):
    path = copy_run(chosen_run, tmp_path / "run")
    selection = Run(path).read_selection()
    if change == "gone":
        (path / SELECTION).unlink()
    else:
        fold = selection.folds[0]
        if change == "rows":
            fold.rows[0] = 10_000
        else:
            fold.y = [(k + 1) % 5 for k in fold.y]
        Run(path).write_json(SELECTION, selection)
    (run,) = collect_report([path], machine).runs
    assert (run.mistakes, run.calibration) == (None, None)
    assert any("selection.json" in sentence for sentence in run.missing)
    assert run.error == Run(path).read_result().cross_validation.error


def test_class_shares(chosen_content, chosen_run):
    (run,) = chosen_content.runs
    data = load(Run(chosen_run).read_environment().source)
    shares = run.shares
    assert shares.labels == data.train.y[data.train.y >= 0].bincount().tolist() == [2, 4, 6, 8, 10]
    assert shares.labelled == pytest.approx([n / 30 for n in shares.labels], abs=1e-6)
    for values in (shares.predicted, shares.estimated):
        assert sum(values) == pytest.approx(1, abs=1e-5)
    difference = torch.tensor(shares.predicted) - torch.tensor(shares.labelled)
    assert shares.distance == pytest.approx(float(difference.abs().sum()) / 2, abs=1e-5)
    assert shares.doubtful == (shares.distance >= 0.2)
    assert shares.examined == shares.unlabelled == run.unlabelled
