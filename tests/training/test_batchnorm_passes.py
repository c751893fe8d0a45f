"""Whose statistics BatchNorm uses in which pass, and which passes move the running ones."""

import copy

import pytest
import torch
from torch import nn

from afda.data.images import DataSet, Images, Preparation
from afda.machine.runtime import Runtime
from afda.nets import BatchNorm, Networks
from afda.nets.small import Small
from afda.recipe import Recipe
from afda.registry import find_plugin, list_names
from afda.training.loop import make_step, run_updates
from afda.training.state import begin


def pixels(seed, n):
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def student():
    torch.manual_seed(0)
    return Small(width=1 / 4).build((1, 8, 8), 4)


@pytest.mark.parametrize("key", [None, 5])
def test_apart_neither_kind_sees_the_other(student, key):
    nets = Networks(student, separate=True)

    def logits(x, u):
        torch.manual_seed(0)
        return nets.run(x, u, key=key).logits

    before = logits(pixels(1, 4), pixels(2, 6))
    assert torch.equal(logits(pixels(1, 4), 3 + pixels(3, 6))[:4], before[:4])
    assert torch.equal(logits(3 + pixels(3, 4), pixels(2, 6))[4:], before[4:])
    assert not torch.equal(logits(pixels(1, 4), 3 + pixels(3, 6))[4:], before[4:])


def test_together_each_kind_sees_the_other(student):
    nets = Networks(student, separate=False)

    def logits(x, u):
        return nets.run(x, u, key=5).logits

    before = logits(pixels(1, 4), pixels(2, 6))
    assert (logits(pixels(1, 4), 3 + pixels(3, 6))[:4] - before[:4]).abs().max() > 0.01
    assert (logits(3 + pixels(3, 4), pixels(2, 6))[4:] - before[4:]).abs().max() > 0.01


@pytest.mark.parametrize("separate", [True, False])
def test_a_key_repeats_a_pass_with_its_noise(student, separate):
    nets = Networks(student, separate=separate)
    first = nets.run(pixels(1, 4), pixels(2, 6), key=5)
    again = nets.run(pixels(1, 4), pixels(2, 6), key=5)
    other = nets.run(pixels(1, 4), pixels(2, 6), key=50)
    assert torch.equal(first.logits, again.logits)
    assert not torch.equal(first.logits, other.logits)
    assert torch.equal(first.features, again.features)


def test_apart_the_two_kinds_have_noise_of_their_own(student):
    same = pixels(1, 4)
    output = Networks(student).run(same, same, key=5)
    assert not torch.equal(output.logits[:4], output.logits[4:])


@pytest.mark.parametrize("separate", [True, False])
def test_one_kind_alone(student, separate):
    nets = Networks(student, separate=separate)
    student.eval()
    both = nets.run(pixels(1, 4), pixels(2, 6)).logits
    torch.testing.assert_close(nets.run(pixels(1, 4), None).logits, both[:4])
    torch.testing.assert_close(nets.run(None, pixels(2, 6)).logits, both[4:])


def training(method, **fields):
    random = torch.Generator().manual_seed(0)
    # Unlabelled images are brighter, so that it shows whose statistics are whose.
    x = torch.randint(0, 100, (60, 1, 8, 8), generator=random, dtype=torch.uint8)
    y = torch.arange(60) % 3
    x[20:] += 100
    y[20:] = -1
    data = DataSet("bright", ("a", "b", "c"), Images(x, y), preparation=Preparation(shift=1))
    recipe = Recipe(
        data="bright",
        net={"name": "small", "width": 0.25, "momentum": 0.3},
        method=tuple({"name": name} for name in method.split("+")),
        steps=3,
        labelled_batch=6,
        unlabelled_batch=10,
        preparation=data.preparation,
        **fields,
    )
    return begin(recipe, data, Runtime(torch.device("cpu")))


def by_hand(values, momentum=0.3):
    """Running mean and variance of each channel after these passes, from plain sums."""
    mean, var = 0.0, 1.0
    for value in values:
        x = value.double().transpose(0, 1).flatten(1)
        batch_mean = x.sum(dim=1) / x.shape[1]
        batch_var = (x - batch_mean[:, None]).square().sum(dim=1) / (x.shape[1] - 1)
        mean, var = (1 - momentum) * mean + momentum * batch_mean, (1 - momentum) * var + momentum * batch_var
    return mean.float(), var.float()


EVERY_PASS = "+".join(list_names("methods"))


@pytest.mark.parametrize("order", ["rotated", "literal"])
@pytest.mark.parametrize(
    ("batchnorm", "statistics"),
    [("apart", "labelled"), ("apart", "unlabelled"), ("apart", "both"), ("together", "both")],
)
def test_running_statistics_come_from_the_clean_passes_the_recipe_names(batchnorm, statistics, order):
    made = training(
        EVERY_PASS, align={"name": "adversarial", "hidden": 8}, batchnorm=batchnorm, statistics=statistics, order=order
    )
    batch, student = made.batches.draw(0), made.nets.student
    convolution = copy.deepcopy(student.f[0])
    with torch.no_grad():
        labelled, unlabelled = convolution(batch.x), convolution(batch.u)
    passes = {"labelled": [labelled], "unlabelled": [unlabelled], "both": [labelled, unlabelled]}[statistics]
    if batchnorm == "together":
        passes = [torch.cat([labelled, unlabelled])]
    before = copy.deepcopy(student)
    next(run_updates(made))

    mean, var = by_hand(passes)
    torch.testing.assert_close(student.f[1].running_mean, mean)
    torch.testing.assert_close(student.f[1].running_var, var)
    norms = [m for m in student.modules() if isinstance(m, BatchNorm)]
    assert [int(m.num_batches_tracked) for m in norms] == [len(passes)] * len(norms)

    # Deeper layers: the same clean pass with torch's own normalisation.
    for name, module in list(before.f.named_children()):
        if isinstance(module, BatchNorm):
            theirs = nn.BatchNorm2d(module.num_features, momentum=0.3)
            theirs.load_state_dict(module.state_dict())
            setattr(before.f, name, theirs)
    parts = [("labelled", batch.x, batch.key), ("unlabelled", batch.u, batch.key + 1)]
    if batchnorm == "together":
        parts = [("both", torch.cat([batch.x, batch.u]), batch.key)]
    for kind, images, key in parts:
        if statistics in (kind, "both"):
            torch.manual_seed(key)
            before.f(images)
    for ours, theirs in zip(student.f, before.f, strict=True):
        if isinstance(ours, BatchNorm):
            torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-4, atol=1e-5)


def test_supervised_only_tracks_its_labelled_images():
    made = training("supervised")
    with torch.no_grad():
        seen = copy.deepcopy(made.nets.student.f[0])(made.batches.draw(0).x)
    next(run_updates(made))
    torch.testing.assert_close(made.nets.student.f[1].running_mean, by_hand([seen])[0])


def test_the_teacher_averages_statistics_and_moves_none_itself():
    made = training("mean-teacher")
    teacher, student = made.nets.teacher, made.nets.student
    expected = [b.clone() for b in teacher.buffers()]
    for step, _ in enumerate(run_updates(made)):
        decay = min(1 - 1 / (step + 2), 0.999)
        for mine, theirs in zip(expected, student.buffers(), strict=True):
            if mine.is_floating_point():
                mine.mul_(decay).add_((1 - decay) * theirs)
    for mine, buffer in zip(expected, teacher.buffers(), strict=True):
        torch.testing.assert_close(buffer, mine)
    assert {int(m.num_batches_tracked) for m in teacher.modules() if isinstance(m, BatchNorm)} == {0}
    assert {int(m.num_batches_tracked) for m in student.modules() if isinstance(m, BatchNorm)} == {3}


UNLABELLED = [name for name in list_names("methods") if find_plugin("methods", name).uses_unlabelled]


@pytest.mark.parametrize("method", UNLABELLED)
@pytest.mark.parametrize("separate", [True, False])
def test_the_passes_of_a_method_move_nothing(method, separate):
    how = {"batchnorm": "apart"} if separate else {"batchnorm": "together", "statistics": "both"}
    made = training(method, **how)
    batch = made.batches.draw(0)
    clean = made.nets.run(batch.x, batch.u, key=batch.key)
    before = [copy.deepcopy(net.state_dict()) for net in (made.nets.student, made.nets.teacher) if net is not None]
    made.recipe.method[0].loss(make_step(made, method, batch, clean, 1, made.recipe.optimisation.compute_rates(0.5)))
    after = [net.state_dict() for net in (made.nets.student, made.nets.teacher) if net is not None]
    for old, new in zip(before, after, strict=True):
        assert all(torch.equal(old[k], new[k]) for k in old)
