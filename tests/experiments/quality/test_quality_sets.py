"""The problems of the quality suite have the shapes, shares and parts that they promise."""

import re
from pathlib import Path

import numpy as np
import pytest

from afda.data.images import DataSet, Images, Preparation
from afda.errors import UserError
from afda.experiments.quality import sets as quality_sets
from afda.experiments.quality.generated import SEPARATION
from afda.experiments.quality.plan import plan_cells
from afda.experiments.quality.sets import SETS, build_subset, select_sets

OFFLINE = [name for name in SETS if name not in ("fashion-mnist", "svhn", "cifar10")]
UNUSUAL = ("uneven-labels", "imbalance", "noisy-labels")
"""Sets in which not every class has the same number of right labels."""


def rows(x):
    """The samples as a set of bytes."""
    return {sample.tobytes() for sample in x}


@pytest.mark.parametrize("labels", [2, 5, 20])
@pytest.mark.parametrize("name", OFFLINE)
def test_a_problem_is_a_function_of_the_seed_with_disjoint_parts(name, labels):
    first, again, other = (SETS[name].make(labels, seed) for seed in (3, 3, 4))
    for part in ("x", "y", "truth", "x_test", "y_test"):
        assert np.array_equal(getattr(first, part), getattr(again, part))
    assert first.x.shape != other.x.shape or not np.array_equal(first.x, other.x)
    assert not np.array_equal(first.x_test, other.x_test)
    assert not rows(first.x) & rows(first.x_test)
    assert len(first.x) == len(first.y) == len(first.truth)
    assert len(first.x_test) == len(first.y_test) >= 50
    assert not first.labelled.all()
    assert np.array_equal(np.unique(first.y[first.labelled]), np.unique(first.y_test))
    if name not in UNUSUAL:
        assert set(np.unique(first.y[first.labelled], return_counts=True)[1]) == {labels}
    if name != "noisy-labels":
        assert np.array_equal(first.y[first.labelled], first.truth[first.labelled])


def count(values, classes=10):
    return np.bincount(values, minlength=classes)


def pool(problem):
    return problem.truth[~problem.labelled]


def test_samples_are_in_random_order():
    problem = SETS["many-classes"].make(2, 0)
    assert 0 < np.count_nonzero(problem.labelled[:100]) < 100
    assert len(np.unique(problem.truth[:100])) > 30


def test_fewer_labels_are_a_part_of_more():
    few, more = (SETS["digits"].make(labels, 0) for labels in (2, 5))
    assert rows(few.x[few.labelled]) < rows(more.x[more.labelled])
    assert rows(few.x_test) == rows(more.x_test)


def test_images():
    problem = SETS["digits-images"].make(2, 0)
    assert problem.x.shape[1:] == (8, 8)
    assert (problem.x.min(), problem.x.max()) == (0, 1)
    assert problem.flatten()[1].shape == (len(problem.x_test), 64)


def test_many_classes():
    problem = SETS["many-classes"].make(2, 0)
    assert problem.x.shape == (1200, 64)
    assert set(count(problem.truth, 100)) == {12}
    assert set(count(problem.y_test, 100)) == {10}


@pytest.mark.parametrize(("labels", "most"), [(2, 20), (5, 50), (20, 100)])
def test_uneven_labels(labels, most):
    problem = SETS["uneven-labels"].make(labels, 0)
    assert sorted(count(problem.y[problem.labelled])) == [labels] * 9 + [most]
    assert len(set(count(pool(problem)))) == 1
    assert len(pool(problem)) > 200


def test_skewed_pool():
    counts = sorted(count(pool(SETS["skewed-pool"].make(5, 0))))
    assert counts[4] * 8 < counts[5]
    assert counts[0] > 8


@pytest.mark.parametrize("labels", [2, 20])
def test_out_of_class(labels):
    problem = SETS["out-of-class"].make(labels, 0)
    assert set(problem.y_test) == set(problem.y[problem.labelled]) == set(range(7))
    assert set(pool(problem)) == set(range(10))
    assert np.mean(pool(problem) >= 7) == pytest.approx(0.3, abs=0.001)


@pytest.mark.parametrize(("labels", "given"), [(2, [8, 5, 3, 2, 1, 1, 1, 1, 1, 1]), (20, None)])
def test_imbalance(labels, given):
    problem = SETS["imbalance"].make(labels, 0)
    assert (count(pool(problem))[0], count(pool(problem))[9]) == (500, 5)
    assert np.array_equal(count(pool(problem)), count(problem.y_test))
    assert given is None or count(problem.y[problem.labelled]).tolist() == given
    assert count(problem.y[problem.labelled]).min() >= 1


def test_the_bayes_error_of_overlapping_classes():
    """With orthogonal centres, the true class has the largest of five independent projections."""
    rng = np.random.default_rng(0)
    projections = rng.normal(size=(200_000, 5)) + SEPARATION * np.eye(5)[0]
    assert np.mean(projections.argmax(axis=1) != 0) == pytest.approx(0.30, abs=0.005)
    problem = SETS["overlapping"].make(20, 0)
    centres = np.stack([problem.x[problem.truth == k].mean(axis=0) for k in range(5)])
    predicted = (problem.x_test @ centres.T).argmax(axis=1)
    assert 0.27 < np.mean(predicted != problem.y_test) < 0.40


def test_useless_features():
    problem = SETS["useless-features"].make(5, 0)
    assert problem.x.shape[1] == 128
    means = np.stack([problem.x[problem.truth == k].mean(axis=0) for k in range(10)])
    assert means[:, 64:].std(axis=0).max() < 1 < means[:, :64].std(axis=0).max()


@pytest.mark.parametrize("labels", [2, 5, 20])
def test_noisy_labels(labels):
    problem = SETS["noisy-labels"].make(labels, 0)
    wrong = problem.labelled & (problem.y != problem.truth)
    assert np.count_nonzero(problem.labelled) == 10 * labels
    assert np.count_nonzero(wrong) == 2 * labels
    assert np.ptp(count(problem.truth[wrong])) <= 1


@pytest.fixture
def published(monkeypatch):
    """A set as a plug-in loads it: every image has a number of its own."""

    def make(start, size):
        numbers = np.arange(start, start + size, dtype=np.uint16).view(np.uint8).reshape(size, 1, 1, 2)
        x = np.repeat(numbers, 3, axis=1)
        return Images(*map(torch.from_numpy, (x, np.arange(size) % 10)))

    torch = pytest.importorskip("torch")
    data = DataSet("svhn", tuple("0123456789"), make(0, 5000), make(5000, 3000), preparation=Preparation())
    monkeypatch.setattr(quality_sets, "load", lambda name: data)
    quality_sets.load_images.cache_clear()
    yield
    quality_sets.load_images.cache_clear()


def number(x):
    """The numbers of images that the fixture made."""
    return np.ascontiguousarray(x[:, 0, :, 0]).view(np.uint16)[:, 0]


@pytest.mark.parametrize("tuning", [False, True])
def test_subsets_open_the_published_test_part_for_reporting_only(published, tuning):
    problem = build_subset("svhn", 5, np.random.default_rng(0), tuning)
    assert problem.x.shape == problem.x_test.shape == (2000, 1, 2, 3)
    assert number(problem.x).max() < 5000
    assert (number(problem.x_test) < 5000).all() == tuning
    assert not set(number(problem.x)) & set(number(problem.x_test))
    assert np.array_equal(number(problem.x) % 10, problem.truth)
    assert set(count(problem.y[problem.labelled])) == {5}


def test_absent_sets_are_left_out_with_a_note(monkeypatch, tmp_path):
    monkeypatch.setenv("AFDA_DATA", str(tmp_path))
    plan = plan_cells("svhn,iris,cifar10")
    assert {cell.set for cell in plan.cells} == {"iris"}
    assert [note.split()[0] for note in plan.notes] == ["svhn", "cifar10"]
    with pytest.raises(UserError, match="svhn is left out, as its files are absent; set AFDA_DATA"):
        plan_cells("svhn")


def test_tuning_uses_other_seeds_and_no_reporting_set():
    reported, tuned = plan_cells("iris", seeds=3), plan_cells("iris", seeds=3, tuning=True)
    assert {cell.seed for cell in reported.cells} == {0, 1, 2}
    assert {cell.seed for cell in tuned.cells} == {100, 101, 102}
    assert {one.role for one in select_sets("", tuning=True)} == {"tuning"}
    with pytest.raises(UserError, match="wine is a set for reporting only"):
        select_sets("wine", tuning=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": "irris"}, "did you mean 'iris'"),
        ({"labels": "2,many"}, "give numbers from 1 to 20"),
        ({"labels": "50"}, "give numbers from 1 to 20"),
        ({"methods": "logistics"}, "did you mean 'logistic'"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(UserError, match=message):
        plan_cells(**{"sets": "iris", **options})


def test_the_page_lists_the_sets_with_their_roles():
    page = Path(__file__).parents[3] / "docs" / "explanation" / "quality.md"
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| (tuning|reporting) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(listed) == {name: one.role for name, one in SETS.items()}
    assert len(SETS) == 16
