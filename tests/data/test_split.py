import inspect
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from afda.data.split import split
from afda.errors import UserError

CLASSES = ("a", "b", "c", "d")


def skewed(n=400, seed=0):
    """Labels of which half are `a` and 2 % `d`; every tenth is hidden."""
    y = torch.from_numpy(np.random.default_rng(seed).choice(4, n, p=[0.5, 0.3, 0.18, 0.02]))
    y[::10] = -1
    return y


def counts(y, indices):
    return torch.bincount(y[torch.from_numpy(indices)], minlength=4).tolist()


@given(seed=st.integers(0, 2**31 - 1), labels=st.integers(4, 150), balanced=st.booleans(), validation=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_three_parts(seed, labels, balanced, validation):
    y = skewed()
    parts = split(y, CLASSES, labels=labels, seed=seed, balanced=balanced, validation=validation)
    assert len(parts.labelled) == labels
    assert len(parts.validation) == (labels if validation else 0)
    # Together they are everything, once.
    assert sorted([*parts.labelled, *parts.unlabelled, *parts.validation]) == list(range(400))
    assert (y[torch.from_numpy(parts.labelled)] >= 0).all()
    assert (y[torch.from_numpy(parts.validation)] >= 0).all()
    assert min(counts(y, parts.labelled)) >= 1
    for part in (parts.labelled, parts.unlabelled, parts.validation):
        assert (np.diff(part) > 0).all()


def test_a_pure_function_of_labels_and_seed():
    y = skewed()
    np.random.seed(1)
    torch.manual_seed(1)
    first = split(y, CLASSES, labels=20, seed=3, validation=True)
    np.random.seed(2)
    torch.manual_seed(2)
    again = split(y.clone(), CLASSES, labels=20, seed=3, validation=True)
    assert first.to_dict() == again.to_dict()
    assert torch.equal(y, skewed())
    assert split(y, CLASSES, labels=20, seed=4).labelled.tolist() != first.labelled.tolist()
    # Nothing of the method, the net or the batch enters.
    assert set(inspect.signature(split).parameters) == {"y", "classes", "labels", "seed", "balanced", "validation"}


@pytest.mark.parametrize("balanced", [True, False])
def test_validation_leaves_the_labelled_set_as_it_is(balanced):
    y = skewed()
    without = split(y, CLASSES, labels=30, seed=5, balanced=balanced)
    held_out = split(y, CLASSES, labels=30, seed=5, balanced=balanced, validation=True)
    assert held_out.labelled.tolist() == without.labelled.tolist()
    assert sorted([*held_out.unlabelled, *held_out.validation]) == without.unlabelled.tolist()


def test_a_validation_set_has_at_most_a_thousand_images():
    y = torch.arange(5000) % 4
    assert len(split(y, CLASSES, labels=1500, validation=True).validation) == 1000


def test_a_balanced_set_is_as_even_as_can_be():
    y = torch.arange(400) % 4
    assert counts(y, split(y, CLASSES, labels=40, balanced=True).labelled) == [10] * 4
    assert sorted(counts(y, split(y, CLASSES, labels=42, balanced=True).labelled)) == [10, 10, 11, 11]
    assert counts(y, split(y, CLASSES, labels=40, balanced=True, validation=True).validation) == [10] * 4
    y = skewed()
    rare = int((y == 3).sum())
    found = counts(y, split(y, CLASSES, labels=3 * rare + 60, balanced=True).labelled)
    assert found[3] == rare
    assert max(found[:3]) - min(found[:3]) <= 1


def test_the_odd_ones_of_a_balanced_set_are_any_class():
    y = torch.arange(400) % 4
    extra = {tuple(counts(y, split(y, CLASSES, labels=5, balanced=True, seed=s).labelled)) for s in range(40)}
    assert len(extra) == 4


def test_a_uniform_set_follows_the_classes_and_misses_none():
    y = torch.cat([torch.zeros(900), torch.ones(90), torch.full((9,), 2), torch.full((1,), 3)]).long()
    drawn = np.array([counts(y, split(y, CLASSES, labels=20, seed=s).labelled) for s in range(200)])
    assert drawn.min() == 1
    assert (drawn[:, 3] == 1).all()
    assert (drawn.sum(axis=1) == 20).all()
    # Without enforcing, 18 and 1.8 of 20 are expected of the two common classes.
    assert drawn[:, 0].mean() == pytest.approx(16.3, abs=0.5)
    assert len({tuple(row) for row in drawn}) > 3


def test_a_uniform_set_is_uniform():
    y = torch.arange(40) % 4
    often = np.zeros(40)
    for seed in range(1000):
        often[split(y, CLASSES, labels=20, seed=seed).labelled] += 1
    # Binomial with p 1/2: a standard deviation of 16.
    assert often.min() > 500 - 5 * 16
    assert often.max() < 500 + 5 * 16


def test_one_label_per_class_is_enough():
    y = skewed()
    for balanced in (True, False):
        for seed in range(20):
            assert counts(y, split(y, CLASSES, labels=4, seed=seed, balanced=balanced).labelled) == [1] * 4


def test_all_labels_by_default():
    y = skewed()
    parts = split(y, CLASSES)
    assert parts.labelled.tolist() == torch.nonzero(y >= 0).flatten().tolist()
    assert parts.unlabelled.tolist() == torch.nonzero(y < 0).flatten().tolist()


def test_to_dict_is_for_json():
    parts = split(skewed(), CLASSES, labels=10, validation=True)
    held = json.loads(json.dumps(parts.to_dict()))
    assert held["labelled"] == parts.labelled.tolist()
    assert held["counts"] == {"labelled": 10, "validation": 10, "unlabelled": 380}


@pytest.mark.parametrize(
    ("labels", "validation", "sentence"),
    [
        (361, False, "361 labels were asked for, but only 360"),
        (3, False, "3 labels cannot cover the 4 classes"),
        (200, True, "Only 160 labels are left for a validation set of 200"),
    ],
)
def test_what_cannot_be(labels, validation, sentence):
    with pytest.raises(UserError, match=sentence):
        split(skewed(), CLASSES, labels=labels, validation=validation)


def test_a_class_without_labels():
    with pytest.raises(UserError, match="The class 'e' has no labelled"):
        split(skewed(), (*CLASSES, "e"), labels=10)
