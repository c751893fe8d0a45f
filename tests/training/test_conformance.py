"""What every method, alignment and net must do; a new one is tested before its author writes a test."""

import pytest
import torch

from afda.machine.runtime import Runtime
from afda.registry import find_plugin, list_names
from afda.training.loop import make_step
from afda.training.metrics import describe_metrics
from contract import ALIGNMENTS, METHODS, NETS, list_tensors, make_data, make_training, update

SEMI_SUPERVISED = [
    method for method in METHODS if any(find_plugin("methods", name).uses_unlabelled for name in method.split("+"))
]


def collect_gradients(module):
    return torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in module.parameters()])


def assert_conforms(training):
    """Do two updates: terms are finite, gradients are where they belong, and weights move."""
    student, teacher = training.nets.student, training.nets.teacher
    before = [p.detach().clone() for p in student.parameters()]
    update(training, 2)
    assert all(total.isfinite() for total in training.sums.values())
    assert collect_gradients(student).isfinite().all()
    parts = [part for part in (student.f, student.g) if list(part.parameters())]  # f of a linear classifier has none
    assert student.g in parts
    assert all(collect_gradients(part).any() for part in parts)
    assert any(not torch.equal(old, new) for old, new in zip(before, student.parameters(), strict=True))
    assert all(new.isfinite().all() for new in student.parameters())
    if teacher is not None:
        assert all(p.grad is None for p in teacher.parameters())
        assert not any(p.requires_grad for p in teacher.parameters())
    for average in training.averaged.values():
        assert all(p.grad is None and not p.requires_grad for p in average.parameters())


def list_terms(training):
    """Return the names of the terms of a whole training; all that it logs is declared."""
    update(training)
    declared = describe_metrics(training.recipe)
    assert set(training.sums) | set(training.latest) <= set(declared)
    return {name for name in training.sums if declared[name].term}


def test_the_suite_has_every_method():
    assert {name for method in METHODS for name in method.split("+")} == set(list_names("methods"))


@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_method_and_alignment(method, align):
    training = make_training(method, align)
    assert_conforms(training)
    again = update(make_training(method, align), 2)
    assert all(map(torch.equal, list_tensors(training), list_tensors(again)))
    assert len(list_tensors(training)) == len(list_tensors(again)) > 20
    other = make_training(method, align, seed=1)
    assert not torch.equal(other.nets.student.g.weight, training.nets.student.g.weight)


@pytest.mark.parametrize(
    ("align", "order"), [*((align, "rotated") for align in ALIGNMENTS), ("adversarial", "literal")]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_restored_state_continues_to_the_same_bits(method, align, order):
    whole = update(make_training(method, align, steps=8, order=order))
    first = update(make_training(method, align, steps=8, order=order), 5)
    restored = make_training(method, align, steps=8, order=order)
    restored.restore_state(first.save_state())
    update(restored)
    assert whole.sums.keys() == restored.sums.keys()
    assert whole.latest == restored.latest
    assert all(map(torch.equal, list_tensors(whole), list_tensors(restored)))


@pytest.mark.parametrize("align", list_names("align"))
@pytest.mark.parametrize("method", METHODS)
def test_alignment_adds_its_term_and_no_other(method, align):
    assert list_terms(make_training(method, align)) == list_terms(make_training(method)) | {"alignment"}
    assert "alignment" not in list_terms(make_training(method))


@pytest.mark.parametrize("align", list_names("align"))
def test_alignment_reaches_f_and_not_g(align):
    training = make_training("supervised", align)
    batch, part = training.batches.draw(0), training.recipe.align
    rates = training.recipe.optimisation.compute_rates(0.5)
    clean = training.nets.run(batch.x, batch.u, key=batch.key)
    if align in training.opponents:
        part.compete(make_step(training, align, batch, clean.detach(), 2, rates))
    (term,) = part.loss(make_step(training, align, batch, clean, 2, rates)).terms.values()
    term.backward()
    assert collect_gradients(training.nets.student.f).any()
    assert not collect_gradients(training.nets.student.g).any()


@pytest.mark.parametrize("method", ["vat+entropy", "mean-teacher", "pi-model", "fixmatch"])
@pytest.mark.parametrize("net", NETS)
def test_nets(net, method):
    assert_conforms(make_training(method, "adversarial", net))
    if method not in ("pi-model", "fixmatch"):
        first, again = (update(make_training(method, "adversarial", net), 1) for _ in range(2))
        assert all(map(torch.equal, list_tensors(first), list_tensors(again)))


@pytest.mark.parametrize("sizes", [(2, 2), (2, 9), (9, 2), (20, 60)])
@pytest.mark.parametrize("method", METHODS)
def test_batches_of_unequal_sizes(method, sizes):
    assert_conforms(make_training(method, "adversarial", labelled_batch=sizes[0], unlabelled_batch=sizes[1]))


@pytest.mark.parametrize(
    ("order", "batchnorm"), [("literal", "apart"), ("rotated", "together"), ("literal", "together")]
)
@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_orders_and_batchnorm(method, align, order, batchnorm):
    both = batchnorm == "together" and (method in SEMI_SUPERVISED or align != "none")
    statistics = "both" if both else "labelled"
    assert_conforms(make_training(method, align, order=order, batchnorm=batchnorm, statistics=statistics))


@pytest.mark.parametrize("method", METHODS)
def test_sgd_and_the_supervised_mean_over_the_batch(method):
    assert_conforms(make_training(method, "reversal", optimisation={"optimizer": "sgd"}, supervised_mean="batch"))


def test_the_supervised_mean_over_the_batch_is_the_same_without_alignment():
    def compute_supervised(align):
        training = make_training("supervised", align, supervised_mean="batch", statistics="labelled")
        return update(training, 1).sums["supervised"]

    assert torch.equal(compute_supervised("none"), compute_supervised("mmd"))


@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_mixed_precision(method, align):
    assert_conforms(make_training(method, align, runtime=Runtime(torch.device("cpu"), "bfloat16")))


@pytest.mark.parametrize("method", SEMI_SUPERVISED)
def test_unlabelled_images_matter_and_their_labels_do_not(method):
    images, labels = make_data().train.x, make_data().train.y
    changed = images.clone()
    changed[15:] = changed[15:].flip(0).flip(1)

    def train(x, y):
        training = make_training(method, steps=6)  # in the second epoch, too
        training.batches.x, training.batches.y = x, y
        return list_tensors(update(training))

    first = list_tensors(update(make_training(method, steps=6)))
    assert not all(map(torch.equal, first, train(changed, labels)))
    assert all(map(torch.equal, first, train(images, labels.clamp_min(0))))


def test_supervised_only_never_looks_at_unlabelled_images():
    first, other = make_training("supervised"), make_training("supervised")
    other.batches.x = other.batches.x.clone()
    other.batches.x[15:] = 0
    assert all(map(torch.equal, list_tensors(update(first)), list_tensors(update(other))))


def test_terms_of_one_name_are_added_up():
    def compute_consistency(method):
        return update(make_training(method), 1).sums["consistency"].item()

    # VAT draws from a generator of its own, and the Pi-model's pass has no key: neither disturbs the other.
    both = compute_consistency("pi-model+vat")
    assert both == pytest.approx(compute_consistency("pi-model") + compute_consistency("vat"), rel=1e-5)


def test_terms_are_named_apart():
    training = make_training("vat+entropy", "adversarial")
    assert list_terms(training) == {"supervised", "consistency", "entropy", "alignment"}
