import copy

import pytest
import torch
from torch import nn

from afda import losses
from afda.align.adversarial import Adversarial, AdversarialAlignment
from afda.align.mmd import MMD, MMDAlignment
from afda.align.reversal import Reversal, ReversalAlignment
from afda.choices import choice, names
from afda.measures import median_bandwidth, mmd2

LABELLED = torch.arange(30) < 10


def features(seed=0, apart=1.0):
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(seed))
    return x + apart * ~LABELLED[:, None]


def adversarial(seed=0, **choices):
    torch.manual_seed(seed)
    return AdversarialAlignment(6, hidden=16, **choices)


def weights(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def gradient(alignment, x, mu=1.0):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(alignment(x, LABELLED, mu), x)[0]


def test_step_improves_d():
    align = adversarial(learning_rate=1e-2)
    x = features()

    def value():
        with torch.no_grad():
            return float(losses.adversarial(align.d(x).squeeze(1), LABELLED))

    seen = [value()]
    for _ in range(20):
        align.step(x, LABELLED)
        seen.append(value())
    assert seen[1] > seen[0]
    assert seen[-1] > seen[0] + 0.3


def test_step_gives_no_gradient_to_f():
    align, x = adversarial(), features().requires_grad_()
    align.step(x, LABELLED)
    assert x.grad is None


def test_step_is_adams_on_the_unscaled_loss():
    align = adversarial(weight=0.001)
    d = copy.deepcopy(align.d)
    by_hand = torch.optim.Adam(d.parameters(), lr=0.02, betas=(0.5, 0.999))
    for seed in range(3):
        x = features(seed)
        align.step(x, LABELLED, learning_rate=0.02, beta1=0.5)
        by_hand.zero_grad()
        probabilities = d(x).sigmoid().squeeze(1)
        (-probabilities[:10].log().mean() - (1 - probabilities[10:]).log().mean()).backward()
        for mine, expected in zip(align.d.parameters(), d.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, expected.grad)
        by_hand.step()
        torch.testing.assert_close(weights(align.d), weights(d))


def test_the_rates_of_d():
    align = adversarial(learning_rate=0.25)
    assert align.optimizer.param_groups[0]["lr"] == 0.25
    align.step(features(), LABELLED, learning_rate=0.125, beta1=0.5)
    assert align.optimizer.param_groups[0]["lr"] == 0.125
    assert align.optimizer.param_groups[0]["betas"] == (0.5, 0.999)


@pytest.mark.parametrize("form", ["minimax", "inverted", "unlabelled-only"])
def test_f_s_loss_leaves_d_alone(form):
    align, x = adversarial(form=form), features().requires_grad_()
    before = weights(align)
    align(x, LABELLED).backward()
    assert x.grad.abs().sum() > 0
    assert all(p.grad is None for p in align.parameters())
    assert all(p.requires_grad for p in align.parameters())
    assert torch.equal(weights(align), before)
    assert align.joint_parameters() == []


@pytest.mark.parametrize("form", ["minimax", "inverted", "unlabelled-only"])
def test_f_s_loss_by_hand(form):
    align, x = adversarial(form=form), features()
    d = align.d(x).sigmoid().squeeze(1).detach()
    expected = d[:10].log().mean() + (1 - d[10:]).log().mean()
    if form == "inverted":
        expected = -(1 - d[:10]).log().mean() - d[10:].log().mean()
    for mu in (1.0, 0.3, 0.0):
        torch.testing.assert_close(align(x, LABELLED, mu), mu * expected)


def test_unlabelled_only_moves_no_labelled_feature():
    x = features()
    only, both = gradient(adversarial(form="unlabelled-only"), x), gradient(adversarial(), x)
    assert not only[LABELLED].any()
    assert both[LABELLED].any(dim=1).all()
    torch.testing.assert_close(only[~LABELLED], both[~LABELLED])


def test_accuracy_counts_both_kinds_alike():
    align = adversarial()
    assert align.accuracy is None
    nn.init.zeros_(align.d[-1].weight)
    nn.init.ones_(align.d[-1].bias)
    align.step(features(), LABELLED)
    assert float(align.accuracy) == 0.5
    align = adversarial(learning_rate=1e-2)
    for _ in range(60):
        align.step(features(apart=5.0), LABELLED)
    assert float(align.accuracy) == 1.0


@pytest.mark.parametrize("form", ["minimax", "inverted", "unlabelled-only", "reversal", "mmd"])
def test_the_number_of_labelled_rows_says_the_same_as_a_mask(form):
    found = []
    for labelled in (10, LABELLED):
        torch.manual_seed(0)
        made = choice("align", form)().build(6) if form in ("reversal", "mmd") else adversarial(form=form)
        x = features().requires_grad_()
        made.step(x.detach(), labelled)
        value = made(x, labelled, 0.5)
        value.backward()
        found.append((value, x.grad, made.accuracy, *made.parameters()))
    for one, other in zip(*found, strict=True):
        assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("kind", ["labelled", "unlabelled"])
@pytest.mark.parametrize("form", ["minimax", "inverted", "unlabelled-only", "reversal"])
def test_a_batch_of_one_kind(form, kind):
    x = features().requires_grad_()
    mask = torch.full((30,), kind == "labelled")
    align = ReversalAlignment(6, hidden=16) if form == "reversal" else adversarial(form=form)
    align.step(x.detach(), mask)
    assert weights(align).isfinite().all()
    d = align.d(x).sigmoid().squeeze(1).detach()
    right, wrong = (d, 1 - d) if kind == "labelled" else (1 - d, d)
    expected = {"inverted": -wrong.log().mean(), "reversal": -right.log().mean()}.get(form, right.log().mean())
    value = align(x, mask)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(align(x, mask, 0.25), value if form == "reversal" else 0.25 * value)
    value.backward()
    assert x.grad.isfinite().all()
    assert x.grad.any() == (form != "unlabelled-only" or kind == "unlabelled")
    assert 0.25 <= float(align.accuracy) <= 0.75


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_reversal_moves_f_as_minimax_does_and_d_unscaled(mu):
    align, x = adversarial(), features()
    reversal = ReversalAlignment(6, hidden=16)
    reversal.d.load_state_dict(align.d.state_dict())
    torch.testing.assert_close(gradient(reversal, x, mu), gradient(align, x, mu))

    reversal(x, LABELLED, mu).backward()
    (-losses.adversarial(align.d(x).squeeze(1), LABELLED)).backward()
    for mine, expected in zip(reversal.d.parameters(), align.d.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad)
        assert expected.grad.any()


def test_reversal_trains_d_with_f_and_reports_its_accuracy():
    reversal = ReversalAlignment(6, hidden=16)
    assert [id(p) for p in reversal.joint_parameters()] == [id(p) for p in reversal.d.parameters()]
    before = weights(reversal)
    reversal.step(features(), LABELLED)
    assert torch.equal(weights(reversal), before)
    reversal(features(), LABELLED)
    expected = losses.balanced_accuracy(reversal.d(features()).squeeze(1), LABELLED)
    assert torch.equal(reversal.accuracy, expected)


def test_mmd_is_the_mean_over_bandwidths():
    x = features()
    p, q = x[:10], x[10:]
    gamma = median_bandwidth(p, q)
    expected = sum(mmd2(p, q, k * gamma) for k in (0.5, 1, 3)) / 3
    for mu in (1.0, 0.3):
        torch.testing.assert_close(MMDAlignment((0.5, 1, 3))(x, LABELLED, mu), mu * expected)
    torch.testing.assert_close(MMDAlignment((1.0,))(x, LABELLED), mmd2(p, q))
    assert not list(MMD().build(6).parameters())


@pytest.mark.parametrize("name", names("align"))
def test_alignment_is_in_full_precision_under_autocast(name):
    """Losses and gradients are differences of nearly equal numbers, so neither way may be rounded, for d or for f."""
    fields = {"hidden": 16} if "hidden" in choice("align", name).model_fields else {}
    found = []
    for mixed in (False, True):
        torch.manual_seed(0)
        align = choice("align", name)(**fields).build(6)
        x = features(apart=0.1).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            align.step(x.detach(), LABELLED, learning_rate=1e-3, beta1=0.9)
            loss = align(x, LABELLED, 0.5)
        loss.backward()
        found.append([loss, x.grad, *(p.grad for p in align.parameters())])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("name", names("align"))
def test_every_alignment_is_built_from_its_choice(name):
    fields = {"hidden": 16} if "hidden" in choice("align", name).model_fields else {}
    align = choice("align", name)(**fields).build(6)
    x = features().requires_grad_()
    align.step(x.detach(), LABELLED, learning_rate=1e-3, beta1=0.9)
    align(x, LABELLED, 0.5).backward()
    assert x.grad.abs().sum() > 0


def test_choices_reach_the_alignment():
    built = Adversarial(form="inverted", hidden=32, learning_rate=0.01).build(6)
    assert built.choices.form == "inverted"
    assert built.d[0].weight.shape == (32, 6)
    assert built.optimizer.param_groups[0]["lr"] == 0.01
    assert Reversal(hidden=32).build(6).d[2].weight.shape == (32, 32)
    assert MMD(bandwidths=(2.0,)).build(6).bandwidths == (2.0,)


@pytest.mark.parametrize("align", ["minimax", "inverted", "unlabelled-only", "reversal", "mmd"])
def test_two_gaussians_meet_in_a_loop_of_ones_own(align):
    torch.manual_seed(0)
    shift = nn.Parameter(torch.tensor([2.0, 0.0]))
    if align in ("reversal", "mmd"):
        align = choice("align", align)(**({"hidden": 32} if align == "reversal" else {})).build(2)
    else:
        align = AdversarialAlignment(2, hidden=32, form=align, learning_rate=1e-2)
    optimizer = torch.optim.Adam([{"params": [shift], "lr": 0.02}, {"params": align.joint_parameters(), "lr": 1e-2}])
    labelled = torch.arange(96) < 32

    for _ in range(200):
        features = torch.randn(96, 2) + shift * ~labelled[:, None]
        align.step(features.detach(), labelled)
        optimizer.zero_grad()
        align(features, labelled).backward()
        optimizer.step()

    assert float(shift.detach().norm()) < 0.8


def test_form_is_one_of_three():
    with pytest.raises(ValueError, match="form"):
        AdversarialAlignment(6, form="maximin")


def test_mmd_of_a_single_image_is_nothing():
    x = features().requires_grad_()
    loss = MMDAlignment((1.0,))(x, 1)
    loss.backward()
    assert loss.item() == 0
    assert not x.grad.any()
