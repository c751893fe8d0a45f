"""Temporal Ensembling by hand."""

import math

import pytest
import torch

from afda.methods import Context
from afda.methods.temporal_ensembling import TemporalEnsembling
from afda.nets import Output
from contract import make_batch, make_step, make_training, update

CONTEXT = Context(shape=(2,), classes=3, features=3, images=10)


def make_logits(seed):
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))


def visit(method, owned, seed, t=1.0):
    """Return the loss of a step whose logits come from this seed: two labelled images, and those of rows 2, 3 and 4."""
    logits = make_logits(seed).requires_grad_()
    batch = make_batch(torch.zeros(2, 2), torch.zeros(3, 2))
    return method.loss(make_step(None, batch, Output(logits, logits), t, owned=owned)), logits


def test_targets_are_averages_of_earlier_predictions():
    method = TemporalEnsembling(weight=2, momentum=0.6)
    owned, sums = method.build(CONTEXT), torch.zeros(3, 3)
    for visits in range(4):
        loss, logits = visit(method, owned, visits)
        predictions = logits.detach()[2:].softmax(1)
        expected = 0.0
        if visits:
            target = sums / (1 - 0.6**visits)
            torch.testing.assert_close(target.sum(dim=1), torch.ones(3))
            expected = 2 * (predictions - target).square().mean().item()
        assert loss.terms["consistency"].item() == pytest.approx(expected, rel=1e-5)
        assert loss.metrics["remembered"].item() == (visits > 0)
        sums = 0.6 * sums + 0.4 * predictions
        torch.testing.assert_close(owned.sums[2:5], sums)
        assert owned.visits.tolist() == [0, 0, *[visits + 1] * 3, *[0] * 5]
        assert not owned.sums[5:].any()


def test_the_weight_ramps_up_and_the_target_has_no_gradient():
    method = TemporalEnsembling(weight=2, ramp=0.5)
    values = []
    for t in (0.0, 1.0):
        owned = method.build(CONTEXT)
        visit(method, owned, 0)
        loss, logits = visit(method, owned, 1, t)
        values.append(loss.terms["consistency"].item())
        (gradient,) = torch.autograd.grad(loss.terms["consistency"], logits)
        assert not gradient[:2].any()
        assert gradient[2:].any()
        assert not owned.sums.requires_grad
    assert values[0] == pytest.approx(math.exp(-5) * values[1], rel=1e-5)


def test_an_epoch_visits_every_unlabelled_image_once():
    training = make_training("temporal-ensembling", steps=5, unlabelled_batch=5)
    update(training)
    visits = training.owned["temporal-ensembling"].visits
    assert visits[training.split.unlabelled].tolist() == [1] * 25
    assert not visits[training.split.labelled].any()
    assert training.metric_sums["remembered"].tolist() == [0, 5]


def test_an_image_that_comes_up_twice_counts_as_one_visit_with_its_mean_prediction():
    method = TemporalEnsembling(momentum=0.6)
    owned, logits = method.build(CONTEXT), make_logits(0)
    batch = make_batch(torch.zeros(2, 2), torch.zeros(3, 2))
    batch.j = torch.tensor([7, 4, 7])
    method.loss(make_step(None, batch, Output(logits, logits), 1.0, owned=owned))
    predictions = logits[2:].softmax(1)
    assert owned.visits.tolist() == [0, 0, 0, 0, 1, 0, 0, 1, 0, 0]
    torch.testing.assert_close(owned.sums[7], 0.4 * (predictions[0] + predictions[2]) / 2)
    torch.testing.assert_close(owned.sums[4], 0.4 * predictions[1])
