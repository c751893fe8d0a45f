import pickle
import threading

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_classifiers_classes, check_estimator, parametrize_with_checks

from afda import AFDAClassifier
from afda.measures import fit_temperature

SMALL = {
    "steps": 20,
    "labelled_batch": 16,
    "unlabelled_batch": 8,
    "learning_rate": 0.03,
    "settings": ["align.hidden=8", "net.hidden=16", "net.features=8", "net.momentum=0.2"],
}
TINY = {**SMALL, "settings": ["align.hidden=8", "net.width=0.125"]}
MINUS_ONE = {
    "check_classifiers_classes": "its last part has the classes -1 and 1, but -1 is no label here; "
    "scikit-learn excuses its own semi-supervised classifiers from that part, by their names"
}


def small(**choices):
    return AFDAClassifier(**{**SMALL, "random_state": 0, **choices})


@parametrize_with_checks([AFDAClassifier(**SMALL)], expected_failed_checks=lambda _: MINUS_ONE, xfail_strict=True)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_scikit_learns_check_that_is_excused_but_for_minus_one():
    check_classifiers_classes("SelfTrainingClassifier", small())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks_of_the_defaults():
    check_estimator(AFDAClassifier(), expected_failed_checks=MINUS_ONE)


@pytest.fixture(scope="module")
def blobs():
    """Three blobs, five samples of each labelled."""
    X, y = make_blobs(90, centers=3, cluster_std=0.7, random_state=1)
    few = np.full(90, -1)
    for k in range(3):
        few[np.flatnonzero(y == k)[:5]] = k
    return X, y, few


@pytest.fixture(scope="module")
def fitted(blobs):
    X, _, few = blobs
    return small().fit(X, few)


# What comes out


def test_partial_labels(fitted, blobs):
    X, y, _ = blobs
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.n_features_in_ == 2
    assert fitted.score(X, y) > 0.9
    probabilities, features = fitted.predict_proba(X), fitted.transform(X)
    assert probabilities.shape == (90, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (fitted.classes_[probabilities.argmax(axis=1)] == fitted.predict(X)).all()
    assert features.shape == (90, fitted.model_.classifier.features)
    assert fitted.get_feature_names_out().tolist() == [f"afdaclassifier{i}" for i in range(features.shape[1])]


def test_by_default_the_method_is_chosen_by_cross_validation(fitted):
    selection = fitted.selection_
    assert fitted.recipe_ == selection.read_chosen()
    assert {"supervised", "afda"} <= {candidate.name for candidate in selection.candidates}
    assert all(candidate.trials for candidate in selection.candidates)
    assert fitted.model_.temperature == max(1, fit_temperature(*selection.collect_held_out()))


def test_a_method_by_name_is_not_compared(blobs):
    X, _, few = blobs
    found = small(method="vat+entropy").fit(X, few)
    assert found.recipe_.title == "vat+entropy-adversarial"
    assert found.selection_ is None
    assert found.model_.temperature == 1


def test_only_labelled_samples_are_scored(fitted, blobs):
    X, _, few = blobs
    known = few >= 0
    weight = np.arange(90)
    assert fitted.score(X, few) == fitted.score(X[known], few[known])
    assert fitted.score(X, few, weight) == fitted.score(X[known], few[known], weight[known])
    with pytest.raises(ValueError, match="None of these samples has a label"):
        fitted.score(X, np.full(90, -1))


@pytest.mark.parametrize("kind", ["names", "None", "empty object", "object numbers", "floats", "list"])
def test_labels_of_every_kind(blobs, fitted, kind):
    X, y, few = blobs
    names = np.array(["ox", "cat", "élan", ""])
    known = few >= 0
    labels = {
        "names": names[few],
        "None": np.where(known, names[few], None),
        "empty object": names[few].astype(object),
        "object numbers": np.where(known, few, None),
        "floats": few.astype(float),
        "list": names[few].tolist(),
    }[kind]
    found = small().fit(X, labels)
    truth = y if kind in ("object numbers", "floats") else names[y]
    assert found.classes_.tolist() == sorted(set(truth))
    assert found.score(X, truth) > 0.9
    assert found.score(X, labels) == found.score(X[known], truth[known])
    assert set(found.predict(X)) <= set(truth)
    if kind == "floats":
        assert (found.predict(X) == fitted.predict(X)).all()


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (8, 8, 3), (8, 8, 4), (17, 20, 3)])
def test_images(shape):
    random = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = random.integers(0, 100, (40, *shape), dtype=np.uint8)
    X[y == 1] += 120
    few = np.where(np.arange(40) < 10, y, -1)
    found = AFDAClassifier(**TINY, random_state=0).fit(X, few)
    assert found.score(X, y) > 0.9
    assert found.transform(X).dtype == np.float32
    as_floats = X / 255
    assert (found.predict(as_floats) == found.predict(X)).all()
    same = AFDAClassifier(**TINY, random_state=0).fit(as_floats, few)
    np.testing.assert_array_equal(same.predict_proba(X), found.predict_proba(X))
    with pytest.raises(ValueError, match="but AFDAClassifier was fitted to"):
        found.predict(X[:, :, :4])
    with pytest.raises(ValueError, match="outside 0 to 1"):
        found.predict(X.astype(float))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[0.0], [1.0]], [0, 1]),
        ([[0.0], [1.0], [0.5]], [0, 1, -1]),
        ([[2.0, 2.0]] * 5, [0, 1, -1, 0, 1]),
        ([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0]], ["a", "b", "c"]),
    ],
)
def test_tiny_data(X, y):
    found = small().fit(X, y)
    assert np.isfinite(found.predict_proba(X)).all()
    assert np.isfinite(found.transform(X)).all()


@pytest.mark.parametrize("method", ["supervised", "pi-model", "mean-teacher", "vat", "entropy", "vat+entropy"])
@pytest.mark.parametrize("align", ["adversarial", "reversal", "mmd", None])
def test_every_method_with_and_without_unlabelled_samples(blobs, method, align):
    X, y, few = blobs
    settings = SMALL["settings"] if align in ("adversarial", "reversal") else SMALL["settings"][1:]
    for labels in (y, few):
        found = small(method=method, align=align, settings=settings, steps=2).fit(X, labels)
        assert found.recipe_.title == (f"{method}-{align}" if align else method)
        assert np.isfinite(found.predict_proba(X)).all()


def test_parameters_reach_the_recipe(blobs):
    X, _, few = blobs
    own = {"method": "pi-model", "align": None, "net": "mlp", "steps": 3, "labelled_batch": 5, "unlabelled_batch": 7}
    settings = ["net.hidden=11", "method.pi-model.weight=3"]
    recipe = AFDAClassifier(**own, learning_rate=0.25, settings=settings).fit(X, few).recipe_
    assert (recipe.title, recipe.net.name(), recipe.net.hidden) == ("pi-model", "mlp", 11)
    assert (recipe.steps, recipe.labelled_batch, recipe.unlabelled_batch) == (3, 5, 7)
    assert (recipe.optimisation.learning_rate, recipe.method[0].weight) == (0.25, 3)
    assert small(settings="net.hidden=12").fit(X, few).recipe_.net.hidden == 12


def test_progress_is_printed_if_asked_for(blobs, capsys):
    X, _, few = blobs
    small(method="vat", steps=25, verbose=True).fit(X, few)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"step {n}" for n in (3, 6, 9, 12, 15, 18, 21, 24, 25)]
    assert "supervised" in lines[0]
    small(steps=2, verbose=True).fit(X, few)
    assert capsys.readouterr().out.startswith("trial 1 of at most 20: supervised\n")
    small().fit(X, few)
    assert capsys.readouterr() == ("", "")


# Among scikit-learn's tools


def test_clone(fitted, blobs):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        again.predict(blobs[0])


def test_pipeline(blobs):
    X, y, few = blobs
    pipeline = make_pipeline(StandardScaler(), small()).fit(1000 * X + 7, few)
    assert pipeline.score(1000 * X + 7, y) > 0.9
    assert pipeline.transform(X).shape == (90, 8)


def test_grid_search_and_cross_validation_on_partial_labels(blobs):
    X, y, few = blobs
    search = GridSearchCV(small(), {"align": ["adversarial", None], "settings": [["net.hidden=16"]]}, cv=2)
    search.fit(X, few)
    assert search.best_score_ > 0.9
    assert search.score(X, y) > 0.9
    scores = cross_val_score(small(steps=50, align=None, settings=()), X, few, cv=2)
    assert scores.min() > 0.9


def test_pickle(fitted, blobs):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(blobs[0]), fitted.predict_proba(blobs[0]))


# Randomness and the caller's torch


def test_random_state(fitted, blobs):
    X, _, few = blobs
    expected = fitted.predict_proba(X)
    np.testing.assert_array_equal(small().fit(X, few).predict_proba(X), expected)
    assert (small(random_state=1).fit(X, few).predict_proba(X) != expected).any()
    np.random.seed(5)
    a = small(random_state=None).fit(X, few).predict_proba(X)
    b = small(random_state=None).fit(X, few).predict_proba(X)
    assert (a != b).any()
    np.random.seed(5)
    np.testing.assert_array_equal(small(random_state=None).fit(X, few).predict_proba(X), a)


def test_the_callers_torch_is_left_alone(blobs):
    X, _, few = blobs
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    small(n_jobs=threads + 1, steps=1).fit(X, few).predict(X)
    with pytest.raises(ValueError, match="no net"):
        small(n_jobs=threads + 1, net="absent").fit(X, few)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_fits_in_threads_do_not_disturb_each_other(fitted, blobs):
    X, _, few = blobs
    found = [small() for _ in range(3)]
    threads = [threading.Thread(target=one.fit, args=(X, few)) for one in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        np.testing.assert_array_equal(one.predict_proba(X), fitted.predict_proba(X))


def test_nothing_is_written(blobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small().fit(blobs[0], blobs[2])
    assert list(tmp_path.iterdir()) == []


# Mistakes


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([0, 0, 0, -1], "at least 2 classes, but y has 1 class"),
        ([-1, -1, -1, -1], "at least 2 classes, but y has no class"),
        (["", "", "", ""], "at least 2 classes, but y has no class"),
        ([None, None, None, None], "at least 2 classes, but y has no class"),
        (np.array([1, "a", None, 1], dtype=object), "y mixes names and numbers"),
        ([0.5, 1.5, 0.25, 0.75], "Unknown label type"),
        ([0, 1], "inconsistent numbers of samples"),
    ],
)
def test_labels_that_will_not_do(y, words):
    with pytest.raises(ValueError, match=words):
        small().fit(np.eye(4), y)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"method": "vatt"}, "no method called 'vatt'; did you mean 'vat'"),
        ({"align": "adversary"}, "did you mean 'adversarial'"),
        (
            {"net": "conv-large", "settings": ()},
            r"cannot take inputs of shape .4,. .*; choose another net, such as mlp",
        ),
        ({"steps": 0}, "steps: input should be greater than or equal to 1"),
        ({"settings": ["net.widht=2"]}, "no setting called 'net.widht'"),
        ({"device": "cpuu"}, "try device cpu"),
        ({"learning_rate": 1e36, "method": "supervised", "align": None, "settings": ()}, "try a lower learning_rate"),
    ],
)
def test_parameters_that_will_not_do(choices, words):
    with pytest.raises(ValueError, match=words):
        small(**choices).fit(np.eye(4), [0, 1, 0, -1])


@pytest.mark.parametrize(
    "X", [np.zeros((4, 8, 8), int), np.zeros((4, 8, 8, 2)), np.full((4, 8, 8), 2.0), np.zeros((4, 2, 2, 2, 2))]
)
def test_images_that_will_not_do(X):
    with pytest.raises(ValueError, match=r"give|divide"):
        small().fit(X, [0, 1, 0, -1])


# What it is for


def test_unlabelled_digits_lower_the_error(digits):
    train, test = (part.x.flatten(1).numpy() / 255 for part in (digits.train, digits.test))
    y = digits.train.y.numpy()
    few = np.full(len(y), -1)
    for k in range(10):
        few[np.flatnonzero(y == k)[:5]] = k
    common = {"steps": 200, "settings": ["net.hidden=128"], "random_state": 0}
    afda = AFDAClassifier(method="vat+entropy", **common).fit(train, few).score(test, digits.test.y.numpy())
    alone = AFDAClassifier(method="supervised", align=None, **common).fit(train, few)
    assert afda > alone.score(test, digits.test.y.numpy()) + 0.05
