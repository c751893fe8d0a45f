import copy
import math

import pytest
import torch

from afda.data.batch import View
from afda.methods import Context
from afda.methods.entropy import Entropy
from afda.methods.mean_teacher import MeanTeacher
from afda.methods.pi_model import PiModel
from afda.methods.supervised import Supervised
from afda.nets import Networks
from afda.nets.shake_shake import ShakeShake
from afda.nets.small import Small
from afda.registry import create, find_plugin, list_names
from contract import fill_fields, make_batch, make_step

RAMP = math.exp(-5 * 0.5**2)
"""eta's ramp at its middle."""


def vectors(seed, n):
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def problem(net=None, *, teacher=False):
    """Nets, a batch of 3 + 5 images whose second view is fixed, and the clean pass. No dropout: nothing is random."""
    torch.manual_seed(0)
    student = (net or Small(width=1 / 8, dropout=0)).build((1, 8, 8), 4)
    other = None
    if teacher:
        other = copy.deepcopy(student).requires_grad_(False)
        for p in other.parameters():
            p.add_(0.1 * torch.randn_like(p))
    nets = Networks(student, other)
    second = View(lambda: vectors(3, 3), lambda: vectors(4, 5))
    batch = make_batch(vectors(1, 3), vectors(2, 5), y=torch.tensor([0, 1, 2]), others=(second,))
    return nets, batch, nets.run(batch.x, batch.u)


def compute_terms(method, nets, batch, clean, t):
    """Return the terms of a method's loss at progress t."""
    owned = method.build(Context(shape=(1, 8, 8), classes=4, features=clean.features.shape[1], images=8))
    return method.loss(make_step(nets, batch, clean, t, owned=owned)).terms


def mean_square(a, b):
    differences = [
        (p - q) ** 2
        for row_a, row_b in zip(a.softmax(1).tolist(), b.softmax(1).tolist(), strict=True)
        for p, q in zip(row_a, row_b, strict=True)
    ]
    return sum(differences) / len(differences)


def gradients(nets, value):
    found = torch.autograd.grad(value, list(nets.student.parameters()), retain_graph=True, allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None])


def test_supervised_adds_nothing():
    nets, batch, clean = problem()
    assert compute_terms(Supervised(), nets, batch, clean, 0.5) == {}
    assert not Supervised.uses_unlabelled
    labelled_only = {name for name in list_names("methods") if not find_plugin("methods", name).uses_unlabelled}
    assert labelled_only == {"supervised", "strong-labels"}


def test_entropy_of_unlabelled_predictions():
    nets, batch, clean = problem()
    rows = clean.logits[3:].softmax(1).tolist()
    by_hand = sum(-p * math.log(p) for row in rows for p in row) / 5
    value = compute_terms(Entropy(weight=0.3), nets, batch, clean, 0)
    assert list(value) == ["entropy"]
    assert value["entropy"].item() == pytest.approx(0.3 * by_hand, rel=1e-5)
    (gradient,) = torch.autograd.grad(value["entropy"], clean.logits)
    assert not gradient[:3].any()
    assert gradient[3:].any(dim=1).all()


@pytest.mark.parametrize("gradient", ["both", "first"])
def test_pi_model_by_hand(gradient):
    nets, batch, clean = problem()
    method = PiModel(weight=7, ramp=0.5, gradient=gradient)
    value = compute_terms(method, nets, batch, clean, 0.25)["consistency"]
    second = nets.student(vectors(4, 5)).logits
    assert value.item() == pytest.approx(7 * RAMP * mean_square(clean.logits[3:], second), rel=1e-4)
    by_hand = (clean.logits[3:].softmax(1) - (second if gradient == "both" else second.detach()).softmax(1)).square()
    torch.testing.assert_close(gradients(nets, value), gradients(nets, 7 * RAMP * by_hand.mean()), rtol=1e-3, atol=1e-5)


def test_pi_model_s_two_gradients_differ():
    nets, batch, clean = problem()
    both, first = (compute_terms(PiModel(gradient=g), nets, batch, clean, 1)["consistency"] for g in ("both", "first"))
    torch.testing.assert_close(both, first)
    assert (gradients(nets, both) - gradients(nets, first)).abs().max() > 1e-3


@pytest.mark.parametrize("on", ["unlabelled", "all"])
def test_mean_teacher_by_hand(on):
    nets, batch, clean = problem(teacher=True)
    value = compute_terms(MeanTeacher(weight=7, ramp=0.5, on=on), nets, batch, clean, 0.25)
    assert list(value) == ["consistency"]
    target = nets.teacher(vectors(4, 5)).logits
    student = clean.logits[3:]
    if on == "all":
        target, student = torch.cat([nets.teacher(vectors(3, 3)).logits, target]), clean.logits
    assert value["consistency"].item() == pytest.approx(7 * RAMP * mean_square(student, target), rel=1e-4)
    (gradient,) = torch.autograd.grad(value["consistency"], clean.logits)
    assert gradient[:3].any() == (on == "all")


def test_the_teacher_gets_no_gradient():
    nets, batch, clean = problem(teacher=True)
    nets.teacher.requires_grad_(True)
    compute_terms(MeanTeacher(), nets, batch, clean, 1)["consistency"].backward()
    assert all(p.grad is None for p in nets.teacher.parameters())
    assert any(p.grad is not None and p.grad.any() for p in nets.student.parameters())


def test_two_heads():
    nets, batch, clean = problem(ShakeShake(width=1 / 48, heads=2), teacher=True)
    torch.manual_seed(5)
    terms = compute_terms(MeanTeacher(weight=7, ramp=0, logit_distance=0.2), nets, batch, clean, 0.25)
    torch.manual_seed(5)
    with torch.no_grad():
        target = nets.teacher(vectors(4, 5)).logits
    assert terms["consistency"].item() == pytest.approx(7 * mean_square(clean.second[3:], target), rel=1e-4)
    differences = [
        (a - b) ** 2
        for one, two in zip(clean.logits.tolist(), clean.second.tolist(), strict=True)
        for a, b in zip(one, two, strict=True)
    ]
    assert terms["logit_distance"].item() == pytest.approx(0.2 * sum(differences) / (8 * 4), rel=1e-4)
    both = torch.autograd.grad(terms["logit_distance"], [clean.logits, clean.second])
    torch.testing.assert_close(both[0], -both[1])
    assert both[0].any(dim=1).all()


@pytest.mark.parametrize("method", [PiModel(weight=3), MeanTeacher(weight=3)])
def test_eta_ramps_up_to_the_weight(method):
    nets, batch, clean = problem(teacher=True)
    start, end = (compute_terms(method, nets, batch, clean, t)["consistency"].item() for t in (0, 1))
    assert start == pytest.approx(math.exp(-5) * end, rel=1e-4)
    unit = compute_terms(type(method)(weight=1), nets, batch, clean, 1)["consistency"].item()
    assert end == pytest.approx(3 * unit, rel=1e-4)


def test_the_average_is_short_at_first():
    decays = [MeanTeacher(decay=0.9).teacher_decay(step) for step in (0, 1, 2, 8, 9, 100)]
    assert decays == pytest.approx([1 / 2, 2 / 3, 3 / 4, 0.9, 0.9, 0.9])
    assert PiModel().teacher_decay(0) is None


@pytest.mark.parametrize("net", [None, ShakeShake(width=1 / 16, heads=2)])
@pytest.mark.parametrize("name", [n for n in list_names("methods") if find_plugin("methods", n).separate_backward])
def test_separate_terms_have_no_gradient_through_the_clean_pass(name, net):
    nets, batch, clean = problem(net)
    parts = [part for part in (clean.logits, clean.features, clean.second) if part is not None]
    method = create("methods", fill_fields("methods", name, threshold=0))
    for term in compute_terms(method, nets, batch, clean, 0.5).values():
        assert torch.autograd.grad(term, parts, retain_graph=True, allow_unused=True) == (None,) * len(parts)
        assert gradients(nets, term).any()
