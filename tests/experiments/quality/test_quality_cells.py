"""Cells of the quality suite: competitors, resuming, and the command."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from afda.errors import RunFailed, UserError
from afda.experiments.quality import cells as quality_cells
from afda.experiments.quality.cells import Cell, Failure, Score, check_failures, measure, read_scores, run_cells
from afda.experiments.quality.competitors import COLUMNS, Prediction, predict, standardise
from afda.experiments.quality.plan import plan_cells
from afda.experiments.quality.problem import Problem
from afda.experiments.quality.sets import SETS
from afda.experiments.quality.tables import render_page

CHEAP = ("logistic", "label_spreading", "self_training")
KEYS = {"set", "labels_per_class", "seeds", *COLUMNS}


def test_a_cell_measures_error_and_balanced_error(monkeypatch):
    """The classifier always answers with the largest class."""
    monkeypatch.setitem(COLUMNS, "ours", lambda problem, seed: Prediction(np.zeros(len(problem.y_test)), "constant"))
    score = measure(Cell("imbalance", 2, 0, "ours"))
    y = SETS["imbalance"].make(2, 0).y_test
    assert score.error == pytest.approx(100 * np.mean(y != 0), abs=1e-4)
    assert (score.balanced_error, score.note) == (90, "constant")


@pytest.mark.parametrize("method", CHEAP)
def test_competitors_learn_and_do_not_see_the_test_set(method):
    problem = SETS["digits"].make(20, 0)
    predicted = predict(method, problem, 0).classes
    assert np.mean(predicted != problem.y_test) < 0.15
    fewer = Problem(problem.x, problem.y, problem.truth, problem.x_test[:5], problem.y_test[:5])
    assert np.array_equal(predict(method, fewer, 0).classes, predicted[:5])


def test_vectors_are_standardised_and_pixels_are_not():
    x, x_test = standardise(SETS["wine"].make(2, 0))
    assert np.allclose((x.mean(axis=0), x.std(axis=0)), [[0], [1]])
    assert not np.allclose(x_test.mean(axis=0), 0)
    images = SETS["digits-images"].make(2, 0)
    assert np.array_equal(standardise(images)[0], images.x.reshape(-1, 64))


@pytest.mark.parametrize("method", CHEAP)
def test_competitors_take_few_samples(method):
    x = np.array([[0.0], [1.0], [0.1], [0.9]])
    problem = Problem(x, np.array([0, 1, -1, -1]), np.array([0, 1, 0, 1]), x, np.array([0, 1, 0, 1]))
    assert predict(method, problem, 0).classes.shape == (4,)


def test_self_training_falls_back_on_its_classifier(monkeypatch):
    from sklearn.semi_supervised import SelfTrainingClassifier

    def refuse(*_):
        raise ValueError("too few labels")

    monkeypatch.setattr(SelfTrainingClassifier, "fit", refuse)
    problem = SETS["digits"].make(20, 0)
    predicted, note = predict("self_training", problem, 0)
    assert np.mean(predicted != problem.y_test) < 0.15
    assert note == "SVC without self-training"


@pytest.fixture
def counted(monkeypatch):
    """Count how often each cell is measured, without training."""
    counts = Counter()

    def measure(cell):
        counts[cell] += 1
        return Score(*cell, error=10.0 + cell.seed, balanced_error=20.0, seconds=0.1, version="1")

    monkeypatch.setattr(quality_cells, "measure", measure)
    return counts


def test_resuming_does_not_repeat_cells(counted, tmp_path):
    file = tmp_path / "new" / "quality.jsonl"
    cells = plan_cells("iris,wine", "2,5", 2).cells
    running = run_cells(cells, file)
    first = [next(running) for _ in range(7)]
    running.close()
    assert [json.loads(line)["method"] for line in file.read_text().splitlines()] == [s.method for s in first]
    with file.open("a") as out:
        out.write('{"set":"iris","labels_per')  # a power failure
    results = list(run_cells(cells, file))
    assert {result.cell for result in results} == set(cells)
    assert set(counted) == set(cells)
    assert set(counted.values()) == {1}
    assert sorted(read_scores(file), key=str) == sorted(results, key=str)
    assert list(run_cells(cells[:3], file)) == [score for score in results if score.cell in cells[:3]]
    assert set(counted.values()) == {1}


def test_a_failed_cell_is_named_and_tried_again(monkeypatch, counted, tmp_path):
    cells = plan_cells("iris", "2", 1, "supervised,logistic").cells
    measured = quality_cells.measure

    def fail(cell):
        if cell.method == "logistic":
            raise ValueError("it does not converge.")
        return measured(cell)

    monkeypatch.setattr(quality_cells, "measure", fail)
    *_, failure = run_cells(cells, tmp_path / "quality.jsonl")
    assert failure == Failure(cells[1], "it does not converge.")
    with pytest.raises(RunFailed, match=r"1 of 2 trainings failed, the first \(iris, 2 labels per class, seed 0,"):
        check_failures([failure], 2)
    monkeypatch.setattr(quality_cells, "measure", measured)
    assert len(list(run_cells(cells, tmp_path / "quality.jsonl"))) == 2
    assert set(counted.values()) == {1}


@pytest.mark.parametrize("line", ["[]", "{}", '{"set": 1}', "nonsense", '{"set":"iris","labels_per_class":2,"seed":0}'])
def test_damaged_lines_are_refused(line, tmp_path):
    file = tmp_path / "quality.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(UserError, match="line 1, is damaged"):
        list(run_cells([], file))


def test_processes_measure_the_same(tmp_path):
    cells = plan_cells("iris", "2", 2, "logistic,label_spreading").cells
    apart, here = (sorted(run_cells(cells, jobs=jobs), key=lambda score: score.cell) for jobs in (2, 1))
    assert [(score.cell, score.error) for score in apart] == [(score.cell, score.error) for score in here]


def test_the_command_end_to_end(tmp_path):
    file = tmp_path / "quality.jsonl"
    options = ["--sets", "iris", "--labels", "2", "--seeds", "1", "--jobs", "1", "--out", str(file)]
    command = [sys.executable, "-m", "afda", "bench", "quality", *options]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    (row,) = result["rows"]
    assert row.keys() >= KEYS
    assert (row["set"], row["labels_per_class"], row["seeds"]) == ("iris", 2, 1)
    assert all(0 <= row[method] < 70 for method in COLUMNS)
    assert row["ours"] - min(row["supervised"], row["logistic"]) == pytest.approx(
        result["summary"]["worst_harm"]["2"]["points"]
    )
    lines = file.read_text()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (0, "")
    assert "Worst harm" in again.stdout
    assert file.read_text() == lines


def test_the_word_follows_bench(afda):
    code, _, err = afda("bench", "--json", "quality")
    assert (code, err) == (2, "Error: Options of `afda bench quality` follow that word; move them there.\n")
    assert afda("bench", "qualty")[0] == 2


def test_an_interrupted_command_prints_what_is_there(afda, monkeypatch, counted, tmp_path):
    measured = quality_cells.measure

    def interrupt(cell):
        if cell.seed == 1:
            raise KeyboardInterrupt
        return measured(cell)

    monkeypatch.setattr(quality_cells, "measure", interrupt)
    file = tmp_path / "quality.jsonl"
    code, out, err = afda("bench", "quality", "--sets", "iris", "--labels", "2", "--jobs", "1", "--out", file, "--json")
    assert (code, err.splitlines()[-1]) == (130, "Note: interrupted.")
    assert [(row["seeds"], row["ours"]) for row in json.loads(out)["rows"]] == [(1, 10.0)]
    assert len(read_scores(file)) == len(COLUMNS)


def test_results_are_rebuilt_as_pages(counted, tmp_path):
    file = tmp_path / "quality" / "report.jsonl"
    results = list(run_cells(plan_cells("iris,wine", "2", 2).cells, file))
    path = Path(__file__).parents[3] / "results" / "rebuild.py"
    spec = importlib.util.spec_from_file_location("rebuild", path)
    rebuild = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rebuild)
    (page,) = rebuild.rebuild_quality(tmp_path / "out", tmp_path)
    assert page == tmp_path / "out" / "quality" / "tables" / "report.md"
    assert page.read_text() == render_page("report", results)
    assert "| iris | 2 | 2 | 10.5* | 10.5 |" in page.read_text()
    assert "## Sets on which no setting was chosen" in page.read_text()
