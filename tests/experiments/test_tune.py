"""The paper's tuning protocol: its grids, on validation images, shared and continued."""

import itertools
import json
import math
import subprocess
import sys

import pytest

from afda.errors import UserError
from afda.experiments.study import Trial, open_study
from afda.experiments.tune import apply_point, build_grid, check_labels, describe_accuracy
from afda.recipe import Recipe
from afda.recipes import list_recipes, recipe

QUICK = [word for text in ("steps=8", "net.width=0.25") for word in ("--set", text)]


def test_grids_are_the_supplements(digits):
    alone = build_grid(recipe("svhn-ablation", digits, "supervised", "none"))
    assert alone["labelled_batch"] == [8, 16, 32, 64, 100]
    aligned = build_grid(recipe("svhn-ablation", digits, "vat", "adversarial"))
    assert aligned["labelled_batch"] == [2, 4, 8, 16, 32]
    assert aligned["optimisation.learning_rate"] == [1e-4, 5e-4, 1e-3, 5e-3]
    narrow = build_grid(recipe("svhn-ablation-cpu", digits, "supervised", "adversarial"))
    assert narrow["labelled_batch"] == [2, 4, 8, 16]
    assert narrow["optimisation.learning_rate"] == [1e-4, 5e-4, 1e-3, 5e-3, 1e-2]
    assert 3.5 in aligned["method.vat.radius"]
    authors_way = build_grid(recipe("svhn-ablation", digits, "mean-teacher", "none"))
    assert authors_way["optimisation.learning_rate"] == [1e-3, 3e-3, 5e-3]
    assert authors_way["method.mean-teacher.weight"] == [1, 5, 10, 50, 100]


@pytest.mark.parametrize("align", ["none", "adversarial"])
@pytest.mark.parametrize("method", ["supervised", "pi-model", "mean-teacher", "vat", "vat+entropy"])
@pytest.mark.parametrize("name", sorted(list_recipes().keys() - {"own-vectors"}))
def test_every_point_is_a_recipe_and_one_is_the_recipe_itself(name, method, align, digits):
    made = recipe(name, digits, method, align)
    values = build_grid(made)
    points = [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
    assert made in [apply_point(made, point) for point in points]


def test_a_search_needs_labels_to_hold_out(digits):
    half = len(digits.train) // 2
    check_labels(digits, recipe("digits-demo", digits, labels=half))
    for labels in (half + 1, None):
        with pytest.raises(UserError, match=f"keep {half} or fewer with --labels"):
            check_labels(digits, recipe("digits-demo", digits).with_settings([f"labels={json.dumps(labels)}"]))


def test_the_batch_keeps_its_size(digits):
    whole = recipe("svhn-ablation", digits, "vat", "adversarial")
    moved = apply_point(whole, {"labelled_batch": 2, "optimisation.learning_rate": 1e-3, "method.vat.radius": 7.0})
    assert (moved.labelled_batch, moved.unlabelled_batch) == (2, 98)
    assert moved.method[0].radius == 7.0
    assert moved.optimisation.learning_rate == 1e-3


def test_how_far_to_trust_the_order(digits):
    points = [Trial({"labelled_batch": size}, error) for size, error in ((2.0, 10.0), (4.0, 10.0), (8.0, 20.0))]
    words = describe_accuracy(points, digits, recipe("digits-demo", digits, "supervised", "none", 50), 4)
    assert "Labels: 50, validation images: 50, seeds: 4; one standard error is 2.1 points" in words
    assert "2 points share the best" in words
    assert "share" not in describe_accuracy(
        points[1:], digits, recipe("digits-demo", digits, "supervised", "none", 50), 4
    )


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    command = ["tune", "digits", "--labels", "20", "--method", "supervised", "--align", "none", *QUICK]
    command += ["--out", folder, "--json", "--trials"]

    def run(trials):
        words = [sys.executable, "-m", "afda", *map(str, command), str(trials)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return folder, run(2), run(1)


def test_a_search_continues(search):
    folder, first, second = search
    assert (first["trials"], second["trials"]) == (2, 3)
    assert len(list((folder / "trials").iterdir())) == 3
    assert second["val_error"] <= first["val_error"]


def test_the_best_is_the_least_validation_error_and_the_test_set_stays_shut(search):
    folder, _, second = search
    results = [json.loads(path.read_text()) for path in (folder / "trials").glob("*/result.json")]
    assert all(result["test_error"] is None and result["test"] is None for result in results)
    assert min(result["val_error"] for result in results) == second["val_error"]
    best = Recipe.read(folder / "best.json")
    assert not best.validation
    assert best.labelled_batch == second["best"]["labelled_batch"]
    assert math.isclose(best.optimisation.learning_rate, second["best"]["optimisation.learning_rate"])


def test_the_page(search):
    folder, _, second = search
    page = (folder / "trials.html").read_text()
    assert page.count("<tr>") == 4
    assert f"{second['val_error']:.2f}" in page
    assert "<svg" in page
    assert "http" not in page.split("</svg>")[1]


def test_a_search_goes_on_with_as_many_seeds(tmp_path, digits):
    made = recipe("digits-demo", digits, "supervised", "none", 50)
    for seeds in (2, 2):
        open_study(tmp_path, made, seeds, build_grid(made))
    with pytest.raises(UserError, match="--seeds 2"):
        open_study(tmp_path, made, 3, build_grid(made))


def test_a_search_goes_on_with_the_same_grid(tmp_path, digits, monkeypatch):
    made = recipe("digits-demo", digits, "supervised", "none", 50)

    def objective(trial):
        return sum(trial.suggest_categorical(path, values) for path, values in build_grid(made).items())

    for _ in range(2):
        open_study(tmp_path, made, 1, build_grid(made)).optimize(objective, n_trials=1)
    monkeypatch.setattr("afda.experiments.tune.RATES", (1e-3,))
    with pytest.raises(UserError, match="another grid"):
        open_study(tmp_path, made, 1, build_grid(made))


def test_a_folder_of_something_else_is_left_alone(tmp_path, digits):
    (tmp_path / "notes.txt").touch()
    made = recipe("digits-demo", digits, "supervised", "none", 50)
    with pytest.raises(UserError, match="something else"):
        open_study(tmp_path, made, 1, build_grid(made))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_search_has_seeds_of_its_own(afda):
    code, _, err = afda("tune", "digits", "--set", "seed=3")
    assert (code, err.count("\n")) == (2, 1)
    assert "use --seeds for the number of seeds" in err
