"""FixMatch by hand."""

import math

import pytest
import torch

from afda.data.batch import View
from afda.methods.fixmatch import FixMatch
from afda.nets import Networks
from afda.nets.small import Small
from contract import make_batch, make_step, make_training, update


def images(seed, n):
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def problem():
    """Nets without dropout, a batch of 3 + 5 images with one strong view, and its clean pass."""
    torch.manual_seed(0)
    nets = Networks(Small(width=1 / 8, dropout=0).build((1, 8, 8), 4))
    batch = make_batch(images(1, 3), images(2, 5), others=(View(lambda: images(3, 3), lambda: images(4, 5)),))
    return nets, batch, nets.run(batch.x, batch.u)


def compute_by_hand(nets, clean, threshold):
    """Return the mean cross-entropy over all images, of which those below the threshold count zero, and their share."""
    weak, strong = clean.logits[3:].softmax(1).tolist(), nets.student(images(4, 5)).logits.softmax(1).tolist()
    confident = [max(p) >= threshold for p in weak]
    losses = [-math.log(q[p.index(max(p))]) for p, q, counts in zip(weak, strong, confident, strict=True) if counts]
    return sum(losses) / 5, sum(confident) / 5


@pytest.mark.parametrize("quantile", [0.0, 0.4, 1.0])
def test_the_loss_by_hand(problem, quantile):
    nets, batch, clean = problem
    confidences = clean.logits[3:].softmax(1).amax(1).sort().values.tolist()
    threshold = (confidences[int(5 * quantile)] if quantile < 1 else confidences[-1] + 1e-3) - 1e-6
    loss = FixMatch(threshold=threshold, weight=0.7).loss(make_step(nets, batch, clean))
    expected, share = compute_by_hand(nets, clean, threshold)
    assert loss.terms["consistency"].item() == pytest.approx(0.7 * expected, rel=1e-4)
    assert loss.metrics["mask_rate"].item() == pytest.approx(share) == pytest.approx(1 - quantile)


def test_the_gradient_flows_through_the_strong_view_only(problem):
    nets, batch, clean = problem
    (term,) = FixMatch(threshold=0).loss(make_step(nets, batch, clean)).terms.values()
    assert torch.autograd.grad(term, clean.logits, retain_graph=True, allow_unused=True) == (None,)
    expected = torch.nn.functional.cross_entropy(nets.student(images(4, 5)).logits, clean.logits[3:].argmax(1))
    weights = list(nets.student.parameters())
    for found, by_hand in zip(*(torch.autograd.grad(value, weights) for value in (term, expected)), strict=True):
        torch.testing.assert_close(found, by_hand)


def test_the_evaluated_average_is_short_at_first():
    decays = [FixMatch(decay=0.9).teacher_decay(step) for step in (0, 1, 8, 9, 100)]
    assert decays == pytest.approx([1 / 2, 2 / 3, 0.9, 0.9, 0.9])
    training = update(make_training("fixmatch"))
    assert training.make_model().classifier is training.nets.teacher


def test_the_average_covers_a_share_of_the_updates_so_far():
    method = FixMatch(decay=0.99, window=0.1)
    assert [method.teacher_decay(step) for step in (0, 80, 10_000)] == pytest.approx([1 / 2, 0.9, 0.99])
