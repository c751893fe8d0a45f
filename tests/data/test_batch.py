"""Which images a step's batch has, and their views."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from afda.data.batch import draw_balanced, draw_weighted, permute, permute_class
from afda.data.batch import draw_positions as draw
from afda.data.images import Preparation
from afda.machine.group import ALONE, Group
from afda.nets import Dropout
from contract import make_training, update


@pytest.mark.parametrize(("n", "size"), [(10, 3), (10, 10), (10, 25), (7, 1), (1, 4)])
def test_every_position_once_per_epoch(n, size):
    epochs = 6
    stream = np.concatenate([draw(n, size, step, seed=1, stream=2) for step in range(-(-epochs * n // size))])
    for epoch in range(epochs):
        assert sorted(stream[epoch * n : (epoch + 1) * n]) == list(range(n))


def test_every_batch_has_its_size():
    assert {len(draw(10, 7, step, seed=0, stream=1)) for step in range(30)} == {7}


def test_a_step_needs_no_other_step():
    forwards = [draw(50, 8, step, seed=3, stream=1).tolist() for step in range(40)]
    permute.cache_clear()
    backwards = [draw(50, 8, step, seed=3, stream=1).tolist() for step in reversed(range(40))]
    assert forwards == backwards[::-1]


def test_the_order_changes_with_epoch_seed_and_stream():
    orders = [
        draw(100, 100, step, seed=seed, stream=stream).tolist()
        for step, seed, stream in [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    ]
    assert len({tuple(order) for order in orders}) == 4


def test_equal_weights_give_the_ordinary_order():
    for step in range(40):
        equal = draw_weighted(np.full(13, 1.0), 5, step, seed=3, stream=2)
        assert np.array_equal(equal, draw(13, 5, step, seed=3, stream=2))


def test_positions_come_up_as_often_as_their_weights_say():
    weights = np.array([1.0, 0.25, 0.0, 1.0, 0.01, 0.5])
    drawn = np.concatenate([draw_weighted(weights, 4, step, seed=0, stream=2) for step in range(3000)])
    shares = np.bincount(drawn, minlength=6) / len(drawn)
    assert shares == pytest.approx(weights / weights.sum(), abs=0.01)
    assert shares[4] > 0
    again = draw_weighted(weights, 4, 2999, seed=0, stream=2)
    assert np.array_equal(again, drawn[-4:])


def test_the_global_random_state_is_neither_used_nor_moved():
    np.random.seed(0)
    expected = np.random.random()
    np.random.seed(0)
    permute.cache_clear()
    draw(10, 5, 0, seed=0, stream=1)
    assert np.random.random() == expected


# Balanced batches

GROUPS = [np.array([0, 1, 2, 3, 4, 5, 6]), np.array([7]), np.array([8, 9, 10])]


@pytest.mark.parametrize("size", [2, 3, 7, 10])
def test_balanced_batches_have_all_classes_evenly(size):
    steps, class_of_row = 42, np.repeat(np.arange(3), [7, 1, 3])
    stream = np.concatenate([draw_balanced(GROUPS, size, step, seed=1) for step in range(steps)])
    assert len(stream) == steps * size
    for round_of_classes in class_of_row[stream][: steps * size // 3 * 3].reshape(-1, 3):
        assert sorted(round_of_classes) == [0, 1, 2]
    for k, rows in enumerate(GROUPS):
        of_class = stream[class_of_row[stream] == k]
        for epoch in of_class[: len(of_class) // len(rows) * len(rows)].reshape(-1, len(rows)):
            assert sorted(epoch) == rows.tolist()


def test_a_balanced_step_needs_no_other_step():
    forwards = [draw_balanced(GROUPS, 4, step, seed=3).tolist() for step in range(40)]
    permute.cache_clear()
    permute_class.cache_clear()
    assert [draw_balanced(GROUPS, 4, step, seed=3).tolist() for step in reversed(range(40))] == forwards[::-1]
    assert [draw_balanced(GROUPS, 4, step, seed=4).tolist() for step in range(40)] != forwards


def test_balanced_batches_of_a_training():
    """Of the labelled images alone; the unlabelled ones are drawn as they are otherwise."""
    plain = make_training("pi-model", labels=9, balanced=False, labelled_batch=6).batches
    even = make_training("pi-model", labels=9, balanced=False, labelled_batch=6, sampling="balanced").batches
    natural = plain.images.y[plain.split.labelled].bincount(minlength=3).tolist()
    assert len(set(natural)) > 1
    for step in range(5):
        batch, other = even.draw(step), plain.draw(step)
        assert batch.y.bincount(minlength=3).tolist() == [2, 2, 2]
        assert torch.equal(batch.y, even.images.y[batch.i])
        assert set(batch.i.tolist()) <= set(even.split.labelled.tolist())
        assert torch.equal(batch.j, other.j)


# Views


def make_source(net="small", group=ALONE, x=None, seed=0, **preparation):
    """Return where the batches of a training come from, for one of several processes."""
    settings = Preparation(**{"shift": 2, "flip": True, **preparation})
    batch = {"labelled_batch": 4, "unlabelled_batch": 8, "preparation": settings, "seed": seed}
    source = make_training("pi-model", net=net, **batch).batches
    images = source.images if x is None else replace(source.images, x=x)
    return replace(source, images=images, group=group)


def draw_views(batch, strength, count=4):
    """Return the unlabelled and labelled images of some views, one after the other."""
    views = [getattr(batch, strength)() for _ in range(count)]
    return [torch.cat([view.u, view.x]) for view in views]


SAME = torch.arange(192, dtype=torch.uint8).view(1, 3, 8, 8).expand(40, -1, -1, -1).contiguous()
"""Images that are all the same, so that views differ by what is drawn and not by which images they are of."""


@pytest.mark.parametrize("strength", ["weak", "strong"])
def test_view_n_depends_on_seed_step_and_n_alone(strength):
    def draw_all():
        return [
            view
            for seed in (0, 1)
            for step in (0, 1)
            for view in draw_views(make_source(x=SAME, seed=seed).draw(step), strength)
        ]

    first = draw_all()
    torch.manual_seed(99)
    np.random.seed(99)
    for view, again in zip(first, draw_all(), strict=True):
        assert torch.equal(view, again)
    assert len({tuple(view.flatten().tolist()) for view in first}) == len(first) == 16


def test_strong_views_differ_from_weak_ones_and_are_counted_with_them():
    source = make_source(x=SAME)
    batch, other = source.draw(0), source.draw(0)
    weak, strong = batch.weak(), batch.strong()
    other.strong()
    assert not torch.equal(weak.u, strong.u)
    assert torch.equal(other.strong().u, strong.u)
    assert torch.equal(source.draw(0).weak().u, weak.u)
    assert torch.equal(batch.x, source.draw(0).view.x)


def test_making_a_view_draws_nothing_from_the_global_random_state():
    source = make_source()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    batch = source.draw(0)
    for view in (batch.weak(), batch.strong()):
        assert view.u.shape == (8, 3, 8, 8)
        assert view.x.shape == (4, 3, 8, 8)
    assert torch.equal(torch.rand(3), expected)


def find_second_view(method, dropout):
    """Return the unlabelled images of the pass after the clean one, with this rate of dropout."""
    training, seen = make_training(method), []
    for module in training.nets.student.modules():
        if isinstance(module, Dropout):
            module.threshold = round(256 * dropout)
    training.nets.student.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    update(training, 1)
    return seen[2]  # after x and u of the clean pass


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(
    ("method", "strength"),
    [
        *((method, "weak") for method in ("pi-model", "entropy+pi-model", "pi-model+vat", "pi-model+mean-teacher")),
        *((method, "strong") for method in ("fixmatch", "entropy+fixmatch", "fixmatch+vat")),
    ],
)
def test_the_second_view_is_the_same_whatever_the_net_drew(method, strength, dropout):
    expected = getattr(make_training("pi-model").batches.draw(0), strength)().u
    assert torch.equal(find_second_view(method, dropout), expected)


@pytest.mark.parametrize("net", ["small", "mlp"])
@pytest.mark.parametrize("strength", ["weak", "strong"])
def test_the_views_of_two_processes_are_those_of_one(strength, net):
    whole = make_source(net).draw(3)
    parts = [make_source(net, Group(rank, 2)).draw(3) for rank in range(2)]
    for name in ("y", "i", "j", "key"):
        expected = getattr(whole, name)
        assert all(np.array_equal(getattr(part, name), expected) for part in parts)
    for _ in range(3):
        view, halves = getattr(whole, strength)(), [getattr(part, strength)() for part in parts]
        assert torch.equal(torch.cat([half.x for half in halves]), view.x)
        assert torch.equal(torch.cat([half.u for half in halves]), view.u)
        assert len(halves[0].u) == 4


def test_whitening_comes_last_in_strong_views():
    """So that without it they are bytes, but for the grey of cutout."""
    source = make_source(normalise="zca")
    view, normaliser = source.draw(0).strong(), source.normaliser
    inverse = torch.linalg.inv(normaliser.matrix.double())
    for images in (view.x, view.u):
        pixels = (images.double().flatten(1) @ inverse).view(images.shape) / normaliser.scale + normaliser.mean
        grey = (pixels - 127.5).abs() < 0.05
        assert ((pixels - pixels.round()).abs() < 0.05)[~grey].all()
        assert pixels.min() > -0.05
        assert pixels.max() < 255.05
        assert 0.1 < grey.float().mean() < 0.3  # a quarter, or less at the border


@pytest.mark.parametrize("normalise", ["centre", "standard", "zca"])
def test_what_zero_padding_brings_in_is_zero_for_the_net(normalise):
    white = make_source(x=torch.full((40, 3, 8, 8), 255, dtype=torch.uint8), padding="zero").draw(0)
    noise = make_source(normalise=normalise, padding="zero").draw(0)
    for expected, found in zip(draw_views(white, "weak"), draw_views(noise, "weak"), strict=True):
        outside = expected == 0
        assert torch.equal(found == 0, outside)
        assert 0.1 < outside.float().mean() < 0.5
