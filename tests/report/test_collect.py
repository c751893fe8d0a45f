"""The content of the report, from runs that are complete and runs that lack something."""

import json
import shlex
from dataclasses import asdict, replace

import pytest

from afda.recipe import Recipe
from afda.report.collect import collect_report, number_duplicates
from afda.report.groups import compare_with_baseline, find_baseline, group_runs
from afda.report.load_runs import read_runs
from afda.runs.directory import BASELINE, Run


def test_the_numbers_are_those_of_the_result(content, runs):
    for shown, path in zip(content.runs, runs, strict=True):
        result, recipe = Run(path).read_result(), Run(path).read_recipe()
        for key in ("bound", "labels", "unlabelled", "seconds", "images_per_second"):
            assert getattr(shown, key) == getattr(result, key)
        assert (shown.seed, shown.steps) == (recipe.seed, recipe.steps) == (result.seed, result.steps)
        assert shown.results == {
            k: getattr(result, k) for k in ("test_error", "balanced_error", "labelled_error", "mmd2")
        }
        assert (shown.part, shown.error, shown.images) == ("test", result.test_error, 500)
        assert shown.interval[0] < shown.error < shown.interval[1]
        assert [c.error for c in shown.class_errors] == list(result.test.class_errors.values())
        assert sum(c.images for c in shown.class_errors) == 500
        assert shown.mistakes.count == shown.wrong == round(5 * result.test_error)
        assert shown.mistakes.confidence == sorted(shown.mistakes.confidence, reverse=True)
        assert shown.calibration.before.accuracy == pytest.approx(100 - result.test_error)
        assert shown.missing == []
    values = asdict(content)
    assert json.loads(json.dumps(values, allow_nan=False)) == json.loads(json.dumps(values))


def test_every_logged_number_is_a_curve_with_a_declaration(content, runs):
    for shown, path in zip(content.runs, runs, strict=True):
        log = Run(path).log.read()
        assert set(shown.curves) == {name for line in log for name, value in line.values.items() if value is not None}
        assert set(shown.curves) | set(shown.results) <= set(content.metrics)
        for name, curve in shown.curves.items():
            assert curve == [(line.step, line.values[name]) for line in log if line.values.get(name) is not None]
    assert len(content.runs[0].bound_curves) == 7


def test_comparison_with_the_baseline(content):
    aligned, supervised = content.runs
    comparison = aligned.comparison
    assert (content.lead, aligned.baseline, supervised.baseline, supervised.comparison) == (0, 1, None, None)
    assert comparison.difference == pytest.approx(aligned.error - supervised.error)
    # Images that only one of the two classifies correctly make up the difference.
    assert comparison.only_baseline - comparison.only_this == aligned.wrong - supervised.wrong
    assert comparison.outcome == "unclear"  # one training per side
    assert f"{supervised.error:.2f} %" in comparison.sentences[0]


def test_several_seeds_are_compared_with_several_of_the_baseline(runs):
    def make(run, seed, error):
        scores = run.result.test.model_copy(update={"error": error})
        recipe = Recipe.of({**run.recipe.model_dump(), "seed": seed})
        return replace(run, recipe=recipe, result=run.result.model_copy(update={"test": scores}))

    aligned, supervised = read_runs(runs)
    errors = {0: (10.0, 20.0), 1: (11.0, 22.0), 2: (12.0, 21.0)}
    found = [make(run, seed, pair[i]) for i, run in enumerate((aligned, supervised)) for seed, pair in errors.items()]
    groups = group_runs(found, [str(i) for i in range(6)], [])
    for i in range(3):
        assert find_baseline(found[i], found) == 3 + i
        comparison = compare_with_baseline(i, 3 + i, found, groups)
        assert (comparison.outcome, comparison.error, comparison.difference) == ("helped", 21.0, -10.0)
    alone = [found[0], found[3], found[4]]
    comparison = compare_with_baseline(0, 1, alone, group_runs(alone, ["a", "b", "c"], []))
    assert (comparison.outcome, comparison.error) == ("unclear", 20.0)
    assert compare_with_baseline(0, None, alone, []) is None


def test_a_baseline_in_the_run_is_included(runs, copy_run, tmp_path):
    path = copy_run(runs[0], tmp_path / "run")
    copy_run(runs[1], path / BASELINE)
    found = read_runs([path, path])
    assert [run.name for run in found] == ["run", f"run/{BASELINE}"]
    assert [run.method for run in found] == ["vat+entropy with adversarial alignment", "supervised-only"]


def test_embedding(content, runs, digits):
    shown = content.runs[0].embedding
    labelled = Run(runs[0]).read_split().labelled
    assert (shown.labelled, len(shown.points)) == (50, 450)
    place = {f"image {row}": i for i, row in enumerate(digits.train.rows)}
    rows = [place[name] for name in shown.names]
    assert rows[:50] == labelled
    assert not set(rows[50:]) & set(labelled)
    assert shown.true == digits.train.y[rows].tolist()
    sheet = content.sheets[shown.sheet]
    assert (sheet.width, sheet.height) == (8, 8)
    assert max(shown.pictures) < sheet.count
    # Both runs have the same labels, so they show the same images, which the page holds once.
    assert content.runs[1].embedding.pictures == shown.pictures


def test_missing_parts_are_named(runs, copy_run, machine, tmp_path):
    kept = collect_report([copy_run(runs[1], tmp_path / "a", without=("model.safetensors",))], machine)
    changed = collect_report([copy_run(runs[1], tmp_path / "b", data={"other": "0" * 64})], machine)
    gone = collect_report([copy_run(runs[1], tmp_path / "c", source=str(tmp_path / "gone.npz"))], machine)
    for report, word in ((kept, "no model.safetensors"), (changed, "have changed"), (gone, "There is no file")):
        (shown,) = report.runs
        assert any(word in sentence for sentence in shown.missing)
        assert shown.error == Run(runs[1]).read_result().test_error
        assert (shown.embedding, shown.mistakes, shown.calibration, report.label_next) == (None, None, None, None)


def test_runs_are_compared_without_their_models(content, runs, copy_run, machine, tmp_path):
    paths = [copy_run(run, tmp_path / run.name, without=("model.safetensors",)) for run in runs]
    assert collect_report(paths, machine).runs[0].comparison == content.runs[0].comparison


def test_runs_of_version_0_1_are_compared_by_their_predictions(content, runs, copy_run, machine, tmp_path):
    """They do not record which images are misclassified."""
    paths = [copy_run(run, tmp_path / run.name) for run in runs]
    for path in paths:
        result = Run(path).read_result()
        result.test = result.test.model_copy(update={"misclassified": None})
        Run(path).write_json("result.json", result)
    assert collect_report(paths, machine).runs[0].comparison == content.runs[0].comparison
    (paths[1] / "model.safetensors").unlink()
    assert collect_report(paths, machine).runs[0].comparison.p is None


def test_validation_error_is_called_that(strange_run, machine):
    (shown,) = collect_report([strange_run], machine).runs
    result = Run(strange_run).read_result()
    assert (shown.part, shown.error) == ("validation", result.val_error)
    assert "validation images" in shown.verdict[0]
    assert shown.comparison is None


def test_a_test_set_that_was_not_opened_stays_closed(runs, copy_run, machine, tmp_path):
    path = copy_run(runs[1], tmp_path / "run")
    Run(path).write_json("result.json", {**Run(path).read_result().to_dict(), "test": None, "test_error": None})
    (shown,) = collect_report([path], machine).runs
    assert (shown.part, shown.error, shown.mistakes) == (None, None, None)


def test_seeds_are_averaged(runs):
    (first,) = read_runs([runs[0]])
    error = first.result.test_error
    second = replace(
        first,
        recipe=Recipe.of({**first.recipe.model_dump(), "seed": 1}),
        result=first.result.model_copy(update={"test_error": error + 2}),
    )
    other = replace(first, recipe=Recipe.of({**first.recipe.model_dump(), "steps": 61}))
    groups = group_runs([first, second, other], ["a", "b", "c"], ["test_error", "val_error"])
    assert [group.runs for group in groups] == [[0, 1], [2]]
    assert groups[0].results["test_error"].mean == pytest.approx(error + 1)
    assert groups[0].results["test_error"].std == pytest.approx(2**0.5)
    assert groups[1].results["test_error"].std is None
    assert "val_error" not in groups[0].results
    assert [group.method.split(", ")[-1] for group in groups] == ["a", "c"]


def test_duplicate_names_are_numbered():
    assert number_duplicates(["a", "b", "a"]) == ["a (1)", "b", "a (2)"]


def test_the_command_repeats_the_run(content, runs, copy_run, machine, tmp_path):
    command = shlex.split(content.runs[0].command)
    assert command[:5] == ["afda", "train", "digits", "--recipe", str(runs[0] / "recipe.json")]
    assert command[command.index("--threads") + 1] == "1"
    path = copy_run(runs[0], tmp_path / "a b", without=("model.safetensors",), baseline=True, no_test=True)
    command = shlex.split(collect_report([path], machine).runs[0].command)
    assert str(path / "recipe.json") in command
    assert command[-2:] == ["--no-test", "--baseline"]
