"""Estimates of the class shares of unlabelled images."""

import pytest
import torch

from afda.data.shares import MOST_WEIGHT, ClassShares, solve_shares

LABELS = torch.tensor([0] * 8 + [1] * 2)


def make_logits(classes, seed=0):
    """Return logits for images of these classes of a classifier that knows the shares of the labels."""
    random = torch.Generator().manual_seed(seed)
    evidence = 2.0 * (2 * classes - 1) + 2**0.5 * torch.randn(len(classes), generator=random)
    return torch.stack([-evidence, evidence], dim=1) + torch.tensor([0.8, 0.2]).log()


def estimate(by, shares=(0.2, 0.8), steps=300, **settings):
    known = ClassShares.of(LABELS, 2, by, **settings)
    random = torch.Generator().manual_seed(1)
    for step in range(steps):
        y = LABELS[torch.randint(10, (32,), generator=random)]
        u = (torch.rand(64, generator=random) < shares[1]).long()
        known.update(torch.cat([make_logits(y, step), make_logits(u, step + 1000)]), y)
    return known


def test_it_begins_with_the_labels():
    known = ClassShares.of(LABELS, 2)
    assert known.labelled.tolist() == pytest.approx([0.8, 0.2])
    assert known.estimate.tolist() == pytest.approx([0.8, 0.2])
    assert known.weigh(LABELS).tolist() == pytest.approx([1.0] * 10)


@pytest.mark.parametrize("by", ["mean", "em", "bbse"])
def test_each_estimator_finds_shares_that_differ_from_the_labels(by):
    known = estimate(by)
    assert known.estimate.sum().item() == pytest.approx(1)
    assert known.estimate[1].item() == pytest.approx(0.8, abs=0.2 if by == "mean" else 0.06)
    weights = known.weigh(torch.tensor([0, 1]))
    assert weights[0] < 0.6
    assert weights[1] > 2


def test_the_mean_is_a_running_mean():
    known = ClassShares.of(LABELS, 2, decay=0.9)
    z = torch.cat([make_logits(LABELS), torch.tensor([[50.0, 0.0]] * 4)])
    known.update(z, LABELS)
    assert known.mean.tolist() == pytest.approx([0.9 * 0.8 + 0.1, 0.9 * 0.2])


def test_weights_have_limits():
    known = ClassShares.of(LABELS, 2)
    known.estimate.copy_(torch.tensor([0.999, 0.001]))
    known.labelled.copy_(torch.tensor([0.001, 0.999]))
    weights = known.weigh(torch.tensor([0, 1]))
    assert weights.tolist() == pytest.approx([MOST_WEIGHT, 1 / MOST_WEIGHT])


def test_shares_that_explain_the_mean_prediction():
    confusion = torch.tensor([[0.9, 0.3], [0.1, 0.7]], dtype=torch.float64)
    q = torch.tensor([0.25, 0.75], dtype=torch.float64)
    torch.testing.assert_close(solve_shares(confusion, confusion @ q), q, atol=5e-3, rtol=0)
    assert (solve_shares(confusion, torch.tensor([0.0, 1.0], dtype=torch.float64)) >= 0).all()
