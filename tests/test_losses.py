import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from afda import losses

LABELLED = torch.tensor([True, False, False, True, False])


def logits(seed, rows=5, classes=4):
    return 2 * torch.randn(rows, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def softmax(row):
    exponentials = [math.exp(z) for z in row]
    return [e / sum(exponentials) for e in exponentials]


def sigmoid(score):
    return 1 / (1 + math.exp(-score))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_cross_entropy():
    z, y = logits(0), [3, 0, 1, 1, 2]
    by_hand = mean(-math.log(softmax(row)[k]) for row, k in zip(z.tolist(), y, strict=True))
    assert float(losses.cross_entropy(z, torch.tensor(y))) == pytest.approx(by_hand, rel=1e-12)


def test_kl_divergence_is_from_the_target_to_the_prediction():
    target, z = logits(0), logits(1)
    by_hand = mean(
        sum(p * math.log(p / q) for p, q in zip(softmax(a), softmax(b), strict=True))
        for a, b in zip(target.tolist(), z.tolist(), strict=True)
    )
    assert float(losses.kl_divergence(target, z)) == pytest.approx(by_hand, rel=1e-12)
    assert float(losses.kl_divergence(z, target)) != pytest.approx(by_hand, rel=1e-2)
    assert float(losses.kl_divergence(z + 7, z)) == pytest.approx(0, abs=1e-14)


def test_squared_error_is_averaged_over_classes_too():
    a, b = logits(0), logits(1)
    by_hand = mean(
        (p - q) ** 2
        for row_a, row_b in zip(a.tolist(), b.tolist(), strict=True)
        for p, q in zip(softmax(row_a), softmax(row_b), strict=True)
    )
    assert float(losses.squared_error(a, b)) == pytest.approx(by_hand, rel=1e-12)


def test_entropy():
    z = logits(0)
    by_hand = mean(-sum(p * math.log(p) for p in softmax(row)) for row in z.tolist())
    assert float(losses.entropy(z)) == pytest.approx(by_hand, rel=1e-12)
    assert float(losses.entropy(torch.zeros(3, 8))) == pytest.approx(math.log(8), rel=1e-6)


def test_adversarial_takes_two_separate_means():
    scores = logits(0, classes=1)[:, 0]
    pairs = list(zip(scores.tolist(), LABELLED.tolist(), strict=True))
    by_hand = mean(math.log(sigmoid(s)) for s, is_l in pairs if is_l) + mean(
        math.log(1 - sigmoid(s)) for s, is_l in pairs if not is_l
    )
    assert float(losses.adversarial(scores, LABELLED)) == pytest.approx(by_hand, rel=1e-12)


def test_inverted_adversarial():
    scores = logits(0, classes=1)[:, 0]
    pairs = list(zip(scores.tolist(), LABELLED.tolist(), strict=True))
    by_hand = -mean(math.log(1 - sigmoid(s)) for s, is_l in pairs if is_l) - mean(
        math.log(sigmoid(s)) for s, is_l in pairs if not is_l
    )
    assert float(losses.inverted_adversarial(scores, LABELLED)) == pytest.approx(by_hand, rel=1e-12)


def test_a_discriminator_that_knows_nothing():
    assert float(losses.adversarial(torch.zeros(5), LABELLED)) == pytest.approx(-2 * math.log(2))
    assert float(losses.inverted_adversarial(torch.zeros(5), LABELLED)) == pytest.approx(2 * math.log(2))


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_sure_predictions_stay_finite(size):
    z = torch.tensor([[size, -size, 0.0], [-size, size, 0.0]], requires_grad=True)
    mask = torch.tensor([True, False])
    values = [
        losses.cross_entropy(z, torch.tensor([1, 0])),
        losses.kl_divergence(z.detach().flip(0), z),
        losses.squared_error(z.detach().flip(0), z),
        losses.entropy(z),
        losses.adversarial(z[:, 0], mask),
        losses.inverted_adversarial(z[:, 0], mask),
    ]
    for value in values:
        (gradient,) = torch.autograd.grad(value, z, retain_graph=True)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: losses.cross_entropy(z, torch.tensor([3, 0, 1, 1, 2])),
        lambda z: losses.kl_divergence(logits(1), z),
        lambda z: losses.kl_divergence(z, logits(1)),
        lambda z: losses.squared_error(logits(1), z),
        losses.entropy,
        lambda z: losses.adversarial(z[:, 0], LABELLED),
        lambda z: losses.inverted_adversarial(z[:, 0], LABELLED),
    ],
)
def test_gradients(loss):
    assert gradcheck(loss, logits(0).requires_grad_())


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_minimax_moves_features_as_gradient_reversal_does(mu):
    features = logits(0).requires_grad_()
    w = logits(1, rows=1)[0]
    (minimax,) = torch.autograd.grad(mu * losses.adversarial((features @ w).tanh(), LABELLED), features)
    scores = (features @ w).tanh()
    of_labelled = F.binary_cross_entropy_with_logits(scores[LABELLED], torch.ones(2, dtype=torch.float64))
    of_unlabelled = F.binary_cross_entropy_with_logits(scores[~LABELLED], torch.zeros(3, dtype=torch.float64))
    (of_d,) = torch.autograd.grad(of_labelled + of_unlabelled, features)
    torch.testing.assert_close(minimax, -mu * of_d)
    assert (minimax.abs().sum(dim=1) > 0).all()


def gradients(loss, scores):
    scores = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(loss(scores, LABELLED), scores)[0].tolist()


def test_both_forms_pull_alike_at_chance():
    assert gradients(losses.adversarial, [0.0] * 5) == pytest.approx([0.5 / 2, -0.5 / 3, -0.5 / 3, 0.5 / 2, -0.5 / 3])
    assert gradients(losses.inverted_adversarial, [0.0] * 5) == pytest.approx(gradients(losses.adversarial, [0.0] * 5))


def test_only_minimax_fades_when_the_discriminator_is_sure():
    sure = [20.0, -20.0, -20.0, 20.0, -20.0]
    assert gradients(losses.adversarial, sure) == pytest.approx([0] * 5, abs=1e-8)
    assert gradients(losses.inverted_adversarial, sure) == pytest.approx([1 / 2, -1 / 3, -1 / 3, 1 / 2, -1 / 3])


def test_balanced_accuracy():
    scores = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    assert float(losses.balanced_accuracy(scores, LABELLED)) == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert float(losses.balanced_accuracy(torch.ones(5), LABELLED)) == 0.5


def test_weights_of_labelled_rows():
    scores, weights = logits(0, classes=1)[:, 0], [0.5, 3.0]
    pairs = list(zip(scores.tolist(), LABELLED.tolist(), strict=True))
    labelled = [s for s, is_l in pairs if is_l]
    others = mean(math.log(1 - sigmoid(s)) for s, is_l in pairs if not is_l)
    by_hand = sum(w * math.log(sigmoid(s)) for w, s in zip(weights, labelled, strict=True)) / sum(weights) + others
    given = torch.tensor(weights, dtype=torch.float64)
    assert float(losses.adversarial(scores, LABELLED, given)) == pytest.approx(by_hand, rel=1e-12)
    # All equal, they change nothing.
    for loss in (losses.adversarial, losses.inverted_adversarial):
        assert float(loss(scores, LABELLED, 7 * torch.ones(2))) == pytest.approx(float(loss(scores, LABELLED)))


def test_information_pulls_the_mean_prediction_towards_the_prior():
    z, m, prior = logits(3), [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.4, 0.1]
    by_hand = mean(
        sum(p * math.log(a / b) for p, a, b in zip(softmax(row), m, prior, strict=True)) for row in z.tolist()
    )
    m, prior = (torch.tensor(shares, dtype=torch.float64) for shares in (m, prior))
    assert float(losses.information(z, m, prior)) == pytest.approx(by_hand, rel=1e-12)
    assert gradcheck(lambda z: losses.information(z, m, prior), z.requires_grad_())
    moved = z - 5 * torch.autograd.grad(losses.information(z, m, prior), z)[0]
    before, after = (v.softmax(dim=1).mean(dim=0) for v in (z, moved))
    assert after[0] < before[0]  # predicted more often than the prior has it
    assert after[2] > before[2]


def test_with_the_batchs_own_mean_it_is_mutual_information():
    """Entropy plus the term is minus the mutual information, up to the prior's log."""
    z = logits(4).requires_grad_()
    m = z.softmax(dim=1).mean(dim=0)
    total = losses.entropy(z) + losses.information(z, m.detach(), torch.full((4,), 0.25, dtype=torch.float64))
    mutual = -(m * m.log()).sum() - losses.entropy(z)
    assert total.item() == pytest.approx(math.log(4) - mutual.item(), rel=1e-12)
    (found,), (expected,) = torch.autograd.grad(total, z), torch.autograd.grad(-mutual, z)
    torch.testing.assert_close(found, expected)
