"""What every method, alignment and net must do; a new one is tested before its author writes a test."""

from functools import cache

import pytest
import torch

from afda.algorithm import steps
from afda.choices import choice, names
from afda.data.images import DataSet, Images, Preparation
from afda.recipe import Recipe
from afda.runtime import Runtime
from afda.training import begin

METHODS = [*names("methods"), "vat+entropy"]
ALIGNMENTS = ["none", *names("align")]
NETS = names("nets")
TINY = {"small": 0.25, "conv-large": 0.0625, "wrn-28-2": 0.125, "shake-shake": 0.02}
CPU = Runtime(torch.device("cpu"))


@cache
def data(net):
    random = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 3
    y[15:] = -1
    if net == "mlp":
        x = torch.randn(40, 12, generator=random)
    else:
        x = torch.randint(0, 256, (40, 2, 8, 8), generator=random, dtype=torch.uint8)
    return DataSet("noise", ("a", "b", "c"), Images(x, y), preparation=Preparation(shift=1, flip=True))


def training(method, align="none", net="small", runtime=CPU, **fields):
    recipe = Recipe(
        data="noise",
        net={"name": net, **({"width": TINY.get(net, 0.1)} if "width" in choice("nets", net).model_fields else {})},
        method=tuple({"name": name} for name in method.split("+")),
        align=align
        if align == "none"
        else {"name": align, **({"hidden": 8} if "hidden" in choice("align", align).model_fields else {})},
        preparation=data(net).preparation,
        **{"steps": 4, "labelled_batch": 5, "unlabelled_batch": 7, **fields},
    )
    return begin(recipe, data(net), runtime)


def gradients(module):
    return torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in module.parameters()])


def bits(made):
    """All numbers of a training's state, in order."""
    found = []

    def walk(value):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            for key in value:
                if key != "seconds":
                    walk(value[key])
        elif isinstance(value, list):
            for element in value:
                walk(element)

    walk(made.state())
    return found


def conforms(made):
    """Two updates: finite terms, gradients where they belong, and weights that move."""
    student, teacher = made.nets.student, made.nets.teacher
    before = [p.detach().clone() for p in student.parameters()]
    updates = steps(made)
    next(updates)
    next(updates)
    assert all(total.isfinite() for total in made.sums.values())
    assert gradients(student).isfinite().all()
    assert gradients(student.f).any()
    assert gradients(student.g).any()
    assert any(not torch.equal(old, new) for old, new in zip(before, student.parameters(), strict=True))
    assert all(new.isfinite().all() for new in student.parameters())
    if teacher is not None:
        assert all(p.grad is None for p in teacher.parameters())
        assert not any(p.requires_grad for p in teacher.parameters())


def terms(made):
    for _ in steps(made):
        pass
    return set(made.sums) - {"discriminator_accuracy"}


@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_method_and_alignment(method, align):
    made = training(method, align)
    conforms(made)
    again = training(method, align)
    updates = steps(again)
    next(updates)
    next(updates)
    assert all(map(torch.equal, bits(made), bits(again)))
    assert len(bits(made)) == len(bits(again)) > 20
    other = training(method, align, seed=1)
    assert not torch.equal(other.nets.student.g.weight, made.nets.student.g.weight)


@pytest.mark.parametrize("align", names("align"))
@pytest.mark.parametrize("method", METHODS)
def test_alignment_adds_its_term_and_no_other(method, align):
    assert terms(training(method, align)) == terms(training(method)) | {"alignment"}
    assert "alignment" not in terms(training(method))


@pytest.mark.parametrize("align", names("align"))
def test_alignment_reaches_f_and_not_g(align):
    made = training("supervised", align)
    batch = made.batch(0)
    clean = made.nets.passes(batch.x, batch.u, key=batch.key)
    made.alignment.step(clean.features.detach(), made.recipe.labelled_batch)
    made.alignment(clean.features, made.recipe.labelled_batch, 1.0).backward()
    assert gradients(made.nets.student.f).any()
    assert not gradients(made.nets.student.g).any()


@pytest.mark.parametrize("method", ["vat+entropy", "mean-teacher", "pi-model"])
@pytest.mark.parametrize("net", NETS)
def test_nets(net, method):
    conforms(training(method, "adversarial", net))
    if method != "pi-model":
        first, again = (training(method, "adversarial", net) for _ in range(2))
        for made in (first, again):
            next(steps(made))
        assert all(map(torch.equal, bits(first), bits(again)))


@pytest.mark.parametrize("sizes", [(2, 2), (2, 9), (9, 2), (20, 60)])
@pytest.mark.parametrize("method", METHODS)
def test_batches_of_unequal_sizes(method, sizes):
    conforms(training(method, "adversarial", labelled_batch=sizes[0], unlabelled_batch=sizes[1]))


@pytest.mark.parametrize(
    ("order", "batchnorm"), [("literal", "apart"), ("rotated", "together"), ("literal", "together")]
)
@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_orders_and_batchnorm(method, align, order, batchnorm):
    both = batchnorm == "together" and (method, align) != ("supervised", "none")
    conforms(training(method, align, order=order, batchnorm=batchnorm, statistics="both" if both else "labelled"))


@pytest.mark.parametrize("method", METHODS)
def test_sgd_and_the_supervised_mean_over_the_batch(method):
    conforms(training(method, "reversal", optimisation={"optimizer": "sgd"}, supervised_mean="batch"))


def test_the_supervised_mean_over_the_batch_is_the_same_without_alignment():
    def supervised(align):
        made = training("supervised", align, supervised_mean="batch", statistics="labelled")
        next(steps(made))
        return made.sums["supervised"]

    assert torch.equal(supervised("none"), supervised("mmd"))


@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_mixed_precision(method, align):
    conforms(training(method, align, runtime=Runtime(torch.device("cpu"), "bfloat16")))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "supervised"])
def test_unlabelled_images_matter_and_their_labels_do_not(method):
    first = training(method)
    next(steps(first))
    changed = data("small").train.x.clone()
    changed[15:] = changed[15:].flip(0).flip(1)
    labelled = data("small").train.y

    def moved(x, y):
        made = training(method)
        made.images, made.labels = x, y
        next(steps(made))
        return made

    assert not all(map(torch.equal, bits(first), bits(moved(changed, labelled))))
    assert all(map(torch.equal, bits(first), bits(moved(data("small").train.x, labelled.clamp_min(0)))))


def test_supervised_only_never_looks_at_unlabelled_images():
    first, other = training("supervised"), training("supervised")
    other.images = other.images.clone()
    other.images[15:] = 0
    for made in (first, other):
        for _ in steps(made):
            pass
    assert all(map(torch.equal, bits(first), bits(other)))


def test_terms_of_one_name_are_added_up():
    def consistency(method):
        made = training(method)
        next(steps(made))
        return made.sums["consistency"].item()

    # The Pi-model first: VAT draws from a generator of its own, so neither disturbs the other.
    assert consistency("pi-model+vat") == pytest.approx(consistency("pi-model") + consistency("vat"), rel=1e-5)


def test_terms_are_named_apart():
    made = training("vat+entropy", "adversarial")
    assert terms(made) == {"supervised", "consistency", "entropy", "alignment"}
