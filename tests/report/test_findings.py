import csv
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from afda.data import load
from afda.errors import UserError
from afda.findings import findings, report
from afda.findings.course import curves, discriminator
from afda.findings.finished import finished_runs
from afda.findings.labelling import uncertain_and_diverse
from afda.findings.verdict import grouped
from afda.recipe import Recipe
from afda.runs import BASELINE, Run


def copied(run, path, without=(), **environment):
    """A copy of a run with some of its files left out, or with another environment."""
    shutil.copytree(run, path, ignore=lambda _, names: [n for n in names if n in without or n.startswith("report")])
    if environment:
        Run(path).write_json("environment.json", {**Run(path).read_json("environment.json"), **environment})
    return path


def test_the_numbers_are_those_of_the_result(values, runs):
    for told, run in zip(values["runs"], runs, strict=True):
        result = Run(run).result()
        for key in ("test_error", "val_error", "mmd2", "bound", "labels", "seed", "steps", "seconds"):
            assert told[key] == result[key]
        assert (told["part"], told["error"], told["images"]) == ("test", result["test_error"], 500)
        assert told["interval"][0] < told["error"] < told["interval"][1]
        assert [c["error"] for c in told["class_errors"]] == list(result["test"]["class_errors"].values())
        assert sum(c["images"] for c in told["class_errors"]) == 500
        assert told["mistakes"]["count"] == told["wrong"] == round(5 * result["test_error"])
        assert told["mistakes"]["confidence"] == sorted(told["mistakes"]["confidence"], reverse=True)
        assert told["reliability"]["before"]["accuracy"] == pytest.approx(100 - result["test_error"])
        assert told["missing"] == []
    assert json.loads(json.dumps(values, allow_nan=False)) == json.loads(json.dumps(values))


def test_against_supervised_only(values):
    aligned, supervised = values["runs"]
    found = aligned["versus"]
    assert (values["lead"], found["run"], supervised["versus"]) == (0, 1, None)
    assert found["difference"] == pytest.approx(aligned["error"] - supervised["error"])
    # Images that only one of the two gets right make up the difference.
    assert found["only_other"] - found["only_this"] == aligned["wrong"] - supervised["wrong"]
    clear = found["p"] < 0.05
    assert found["outcome"] == (("helped" if found["difference"] < 0 else "harmed") if clear else "unclear")
    assert f"{supervised['error']:.2f} %" in found["words"][0]


def test_a_companion_in_the_run_comes_along(runs, tmp_path):
    path = copied(runs[0], tmp_path / "run")
    copied(runs[1], path / BASELINE)
    found = finished_runs([path, path])
    assert [one.name for one in found] == ["run", f"run/{BASELINE}"]
    assert [one.words for one in found] == ["vat+entropy with adversarial alignment", "supervised-only"]


def test_the_map(values, runs, digits):
    told = values["runs"][0]["map"]
    labelled = Run(runs[0]).read_json("split.json")["labelled"]
    assert (told["labelled"], len(told["points"])) == (50, 450)
    place = {f"image {row}": i for i, row in enumerate(digits.train.rows)}
    rows = [place[name] for name in told["names"]]
    assert rows[:50] == labelled
    assert not set(rows[50:]) & set(labelled)
    assert told["true"] == digits.train.y[rows].tolist()
    sheet = values["sheets"][told["sheet"]]
    assert (sheet["width"], sheet["height"]) == (8, 8)
    assert max(told["pictures"]) < sheet["count"]
    # The two runs have the same labels, so they show the same images, which the page holds once.
    assert values["runs"][1]["map"]["pictures"] == told["pictures"]


def test_what_is_missing_is_said(runs, machine, tmp_path):
    kept = findings([copied(runs[1], tmp_path / "a", without=("model.safetensors",))], machine)
    changed = findings([copied(runs[1], tmp_path / "b", data={"other": "0" * 64})], machine)
    gone = findings([copied(runs[1], tmp_path / "c", source=str(tmp_path / "gone.npz"))], machine)
    for values, word in ((kept, "no model.safetensors"), (changed, "have changed"), (gone, "There is no file")):
        (told,) = values["runs"]
        assert any(word in sentence for sentence in told["missing"])
        assert told["error"] == Run(runs[1]).result()["test_error"]
        assert (told["map"], told["mistakes"], told["reliability"], values["next"]) == (None, None, None, None)


def test_without_predictions_chance_is_left_open(runs, machine, tmp_path):
    weightless = copied(runs[1], tmp_path / "a", without=("model.safetensors",))
    told = findings([copied(runs[0], tmp_path / "b", without=("model.safetensors",)), weightless], machine)["runs"][0]
    assert (told["versus"]["p"], told["versus"]["outcome"]) == (None, "unclear")
    assert "cannot be said" in told["versus"]["words"][1]


def test_validation_error_is_called_that(strange_run, machine):
    (told,) = findings([strange_run], machine)["runs"]
    result = Run(strange_run).result()
    assert (told["part"], told["error"]) == ("validation", result["val_error"])
    assert "validation images" in told["verdict"][0]
    assert told["versus"] is None


def test_a_test_set_that_was_left_shut_stays_so(runs, machine, tmp_path):
    path = copied(runs[1], tmp_path / "run")
    Run(path).write_json("result.json", {**Run(path).result(), "test": None, "test_error": None})
    (told,) = findings([path], machine)["runs"]
    assert (told["part"], told["error"], told["mistakes"]) == (None, None, None)


def test_seeds_are_averaged(runs):
    first, second, other = (finished_runs([runs[0]])[0] for _ in range(3))
    second.recipe = Recipe.of({**first.recipe.model_dump(), "seed": 1})
    second.result = {**first.result, "test_error": first.result["test_error"] + 2}
    other.recipe = Recipe.of({**first.recipe.model_dump(), "steps": 61})
    groups = grouped([first, second, other])
    assert [group["runs"] for group in groups] == [[0, 1], [2]]
    assert groups[0]["test_error"] == pytest.approx(first.result["test_error"] + 1)
    assert groups[0]["test_error_std"] == pytest.approx(2**0.5)
    assert groups[1]["test_error_std"] is None


@pytest.mark.parametrize(
    ("accuracies", "state", "light"),
    [
        ([0.6, 0.7, 0.6, 0.55, 0.53], "healthy", "good"),
        ([0.6, 0.7, 0.9, 0.95, 0.99], "too strong", "bad"),
        ([0.6, 0.7, 0.7, 0.7, 0.75], "rather strong", "warn"),
        ([0.5, 0.51, 0.5, 0.5, 0.49], "collapsed", "bad"),
        ([0.6, 0.7, *[0.5] * 20], "collapsed", "bad"),
        ([0.6, 0.5, 0.4, 0.3, 0.3], "too weak", "warn"),
    ],
)
def test_the_light(runs, accuracies, state, light):
    lines = [{"step": i, "discriminator_accuracy": a} for i, a in enumerate(accuracies)]
    one = SimpleNamespace(run=SimpleNamespace(log=lambda: lines), recipe=Run(runs[0]).recipe())
    found = discriminator(one)
    assert (found["state"], found["light"], found["accuracy"]) == (state, light, accuracies[-1])
    one.recipe = Run(runs[1]).recipe()
    assert discriminator(one) is None


def test_curves():
    log = [{"step": 5, "supervised": 1.5, "mu": 0.1, "seconds": 2}, {"step": 9, "mmd2": -0.1, "bound": {"gap": 2.0}}]
    found = curves([*log, {"step": 10, "bound": None}])
    assert found == {
        "terms": {"supervised": [[5, 1.5]]},
        "mu": [[5, 0.1]],
        "mmd2": [[9, -0.1]],
        "bound": {"gap": [[9, 2.0]]},
    }


def test_uncertain_and_diverse():
    random = np.random.default_rng(0)
    centres = np.repeat(np.eye(4) * 20, 100, axis=0)
    features = centres + random.normal(size=centres.shape)
    first = np.where(np.arange(400) % 2, 0.55, 0.99) + 0.004 * random.uniform(size=400)
    chosen = uncertain_and_diverse(features, np.stack([first, 1 - first], axis=1), 4)
    assert sorted(chosen // 100) == [0, 1, 2, 3]
    assert (first[chosen] < 0.56).all()
    assert (np.diff(first[chosen]) >= 0).all()
    # All alike, or fewer than asked for.
    assert len(uncertain_and_diverse(np.ones((9, 2)), np.full((9, 2), 0.5), 4)) == 4
    assert len(uncertain_and_diverse(features[:3], np.full((3, 2), 0.5), 4)) == 3


def test_the_table_to_fill_in_is_accepted_back(page_file, values, tmp_path):
    table = page_file.with_name("report-label-next.csv")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert list(rows[0]) == ["row", "label", "suggested", "confidence"]
    assert {row["label"] for row in rows} == {""}
    assert [int(row["row"]) for row in rows] == values["next"]["rows"]
    for row in rows[:2]:
        row["label"] = row["suggested"]
    filled = tmp_path / "filled.csv"
    with filled.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    again = load("digits", more_labels=[str(filled)])
    place = {str(row): i for i, row in enumerate(again.train.rows)}
    assert [again.classes[again.train.y[place[row["row"]]]] for row in rows[:2]] == [r["label"] for r in rows[:2]]


def test_nothing_is_overwritten_unasked(runs, machine, tmp_path):
    path = copied(runs[1], tmp_path / "run", without=("model.safetensors",))
    written = report([path], machine)
    assert written == [path / "report.html"]
    with pytest.raises(UserError, match="already exists; add --overwrite"):
        report([path], machine)
    assert report([path], machine, overwrite=True) == written
    (path / "result.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        report([path], machine, overwrite=True)
    with pytest.raises(UserError, match="There is no directory"):
        report([tmp_path / "absent"], machine)
    with pytest.raises(UserError, match="is a directory"):
        report([runs[0]], machine, tmp_path)
