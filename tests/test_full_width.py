"""The paper's recipes at full width: they start and step, since they are what the owner of a GPU runs first."""

from functools import cache

import pytest
import torch

from afda.data import load
from afda.data.normalise import fit_normaliser
from afda.errors import UserError
from afda.experiments.bench.steps import make_noise_images
from afda.machine.runtime import Runtime
from afda.recipes import list_recipes, recipe
from afda.training.loop import run_updates
from afda.training.state import begin

FULL = sorted(name for name in list_recipes() if name.startswith(("svhn-", "cifar10-")) and not name.endswith("-cpu"))
CPU = Runtime(torch.device("cpu"))
loaded, fitted_once = cache(load), cache(fit_normaliser)


def stepped(made, data, updates):
    """Each loss of the first updates, and whether every weight has moved."""
    training = begin(made, data, CPU)
    before = [p.detach().clone() for p in training.nets.student.parameters()]
    going = run_updates(training)
    for _ in range(updates):
        next(going)
    after = training.nets.student.parameters()
    return training.sums, [bool((a != b).any()) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("align", ["none", "adversarial"])
@pytest.mark.parametrize("name", FULL)
def test_full_width_recipes_start_and_step(name, align):
    """With small batches, so that this is for every machine."""
    data = make_noise_images(200)
    made = recipe(name, data, None if "headline" in name else "vat", align, labels=50)
    assert getattr(made.net, "width", 1.0) == 1.0
    small = ["labelled_batch=3", "unlabelled_batch=3", 'preparation.normalise="standard"']
    sums, moved = stepped(made.with_settings(small), data, 1)
    assert all(moved)
    assert all(bool(torch.isfinite(total)) for total in sums.values())


@pytest.mark.parametrize("align", ["none", "adversarial"])
@pytest.mark.parametrize("method", ["strong-labels", "vat+entropy", "fixmatch+strong-labels"])
def test_the_recipe_for_photos_on_a_gpu_starts_and_steps(method, align):
    data = make_noise_images(200)
    made = recipe("own-images-gpu", data, method, align, labels=50)
    assert made.net.width == 1.0
    assert made.preparation.flip
    sums, moved = stepped(made.with_settings(["labelled_batch=3", "unlabelled_batch=3"]), data, 2)
    assert all(moved)
    assert all(bool(torch.isfinite(total)) for total in sums.values())


@pytest.mark.slow
@pytest.mark.parametrize("align", ["none", "adversarial"])
@pytest.mark.parametrize("method", ["supervised", "pi-model", "mean-teacher", "vat"])
@pytest.mark.parametrize("name", [name for name in FULL if "headline" not in name or "svhn" in name])
def test_full_batches_of_the_real_data(name, method, align, monkeypatch):
    """As the recipe says, whitening and all. Shake-Shake's batch of 512 is for a GPU, and is left to the test above."""
    monkeypatch.setattr("afda.training.state.fit_normaliser", fitted_once)
    try:
        data = loaded(name.partition("-")[0])
    except UserError as missing:
        pytest.skip(str(missing))
    sums, moved = stepped(recipe(name, data, method, align, labels=1000), data, 2)
    assert all(moved)
    assert all(bool(torch.isfinite(total)) for total in sums.values())
