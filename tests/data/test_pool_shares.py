"""Class shares of unlabelled images by EM, from predictions of a classifier that was trained with other shares."""

import pytest
import torch

from afda.data.shares import estimate_shares


def make_predictions(shares, counted, labelled):
    """Return the exact posterior of three overlapping classes on a line under the labelled shares."""
    random = torch.Generator().manual_seed(0)
    y = torch.multinomial(torch.tensor(shares), counted, replacement=True, generator=random)
    x = 2.0 * y + torch.randn(counted, generator=random)
    log_likelihood = -(x[:, None] - 2.0 * torch.arange(3)).square() / 2
    return (log_likelihood + torch.tensor(labelled).log()).softmax(dim=1)


def test_shares_are_recovered():
    truth, labelled = [0.7, 0.1, 0.2], [0.2, 0.6, 0.2]
    predictions = make_predictions(truth, 20000, labelled)
    assert float(predictions.mean(dim=0)[0]) < 0.62  # which the mean prediction is not
    assert estimate_shares(predictions, torch.tensor(labelled)).tolist() == pytest.approx(truth, abs=0.02)


def test_images_count_as_much_as_their_weights():
    predictions = torch.eye(2).repeat(10, 1)
    weights = torch.tensor([3.0, 1.0]).repeat(10)
    assert estimate_shares(predictions, torch.tensor([0.5, 0.5]), weights).tolist() == pytest.approx([0.75, 0.25])


def test_a_class_without_labels_keeps_a_share():
    found = estimate_shares(torch.full((4, 2), 0.5), torch.tensor([1.0, 0.0]))
    assert found.isfinite().all()
    assert float(found.sum()) == pytest.approx(1)
