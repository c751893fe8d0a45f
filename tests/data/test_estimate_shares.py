import pytest
import torch

from afda.data.shares import estimate_shares


def test_em_finds_the_shares_of_images_that_differ_from_those_of_the_labels():
    """With the true probabilities under the labels' shares, only the shares are unknown."""
    torch.manual_seed(0)
    labelled, true = torch.tensor([0.5, 0.5]), torch.tensor([0.9, 0.1])
    y = (torch.rand(20_000) < true[1]).double()
    x = torch.randn(20_000, dtype=torch.float64) + 2 * y
    likelihoods = torch.stack([torch.exp(-(x**2) / 2), torch.exp(-((x - 2) ** 2) / 2)], dim=1)
    probabilities = likelihoods * labelled
    probabilities /= probabilities.sum(dim=1, keepdim=True)
    assert float(probabilities.mean(dim=0)[1]) > 0.2  # the mean is drawn towards the labels' shares
    assert estimate_shares(probabilities, labelled).tolist() == pytest.approx(true.tolist(), abs=0.01)


def test_certain_predictions_are_counted():
    probabilities = torch.eye(3)[[0, 0, 0, 1]]
    estimated = estimate_shares(probabilities, torch.tensor([0.2, 0.2, 0.6]))
    assert estimated.tolist() == pytest.approx([0.75, 0.25, 0.0])
