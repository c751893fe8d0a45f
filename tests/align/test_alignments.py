import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from afda import losses
from afda.align.adversarial import Adversarial, AdversarialAlignment
from afda.align.mmd import MMD
from afda.align.reversal import Reversal, ReversalAlignment
from afda.measures import median_bandwidth, mmd2
from afda.methods import Context
from afda.nets import Output
from afda.registry import create, list_names
from afda.schedules import Optimisation
from afda.training.state import find_optimizer
from contract import fill_fields, make_batch, make_step

LABELLED = torch.arange(30) < 10


def features(seed=0, apart=1.0):
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(seed))
    return x + apart * ~LABELLED[:, None]


def adversarial(seed=0, **choices):
    torch.manual_seed(seed)
    return AdversarialAlignment(6, hidden=16, **choices)


def build(form, features=6, hidden=16, **settings):
    """Return how an alignment's d is updated, its loss of (features, labelled, mu), and what it owns, if anything."""
    torch.manual_seed(0)
    if form == "mmd":
        return (lambda *_: None), (lambda x, labelled, mu=1.0: mu * MMD().compute_mmd2(x, labelled)), None
    if form == "reversal":
        owned = ReversalAlignment(features, hidden)
        return (lambda *_: None), owned, owned
    owned = AdversarialAlignment(features, hidden=hidden, form=form, **settings)
    return owned.step, owned, owned


def make_aligned_step(plugin, x, labelled=10, t=0.5):
    """Return what an alignment sees of an update with these features; what it owns is built from seed 0."""
    torch.manual_seed(0)
    owned = plugin.build(Context(shape=(3,), classes=2, features=6, images=30))
    batch = make_batch(torch.zeros(labelled, 3), torch.zeros(len(x) - labelled, 3))
    return make_step(None, batch, Output(x[:, :2], x), t, owned=owned)


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
    assert float(align.accuracy) == 0.5
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
        compete, loss, owned = build(form)
        x = features().requires_grad_()
        compete(x.detach(), labelled)
        value = loss(x, labelled, 0.5)
        value.backward()
        found.append([value, x.grad, *([] if owned is None else [owned.accuracy, *owned.parameters()])])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["labelled", "unlabelled"])
@pytest.mark.parametrize("form", ["minimax", "inverted", "unlabelled-only", "reversal"])
def test_a_batch_of_one_kind(form, kind):
    x = features().requires_grad_()
    mask = torch.full((30,), kind == "labelled")
    compete, align, owned = build(form)
    compete(x.detach(), mask)
    assert weights(owned).isfinite().all()
    d = owned.d(x).sigmoid().squeeze(1).detach()
    right, wrong = (d, 1 - d) if kind == "labelled" else (1 - d, d)
    expected = {"inverted": -wrong.log().mean(), "reversal": -right.log().mean()}.get(form, right.log().mean())
    value = align(x, mask)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(align(x, mask, 0.25), value if form == "reversal" else 0.25 * value)
    value.backward()
    assert x.grad.isfinite().all()
    assert x.grad.any() == (form != "unlabelled-only" or kind == "unlabelled")
    assert 0.25 <= float(owned.accuracy) <= 0.75


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
    assert find_optimizer(reversal) is None
    assert all(p.requires_grad for p in reversal.d.parameters())
    reversal(features(), LABELLED)
    expected = losses.balanced_accuracy(reversal.d(features()).squeeze(1), LABELLED)
    assert torch.equal(reversal.accuracy, expected)


def test_mmd_is_the_mean_over_bandwidths():
    x = features()
    p, q = x[:10], x[10:]
    gamma = median_bandwidth(p, q)
    expected = sum(mmd2(p, q, k * gamma) for k in (0.5, 1, 3)) / 3
    for mu in (1.0, 0.3):
        align = MMD(bandwidths=(0.5, 1, 3), weight=mu, gamma=100)
        torch.testing.assert_close(align.loss(make_aligned_step(align, x)).terms["alignment"], mu * expected)
    torch.testing.assert_close(MMD(bandwidths=(1.0,)).compute_mmd2(x, LABELLED), mmd2(p, q))
    assert MMD().build(Context(shape=(3,), classes=2, features=6, images=30)) is None


@pytest.mark.parametrize("name", list_names("align"))
def test_alignment_is_in_full_precision_under_autocast(name):
    """Losses and gradients are differences of nearly equal numbers, so neither way may be rounded, for d or for f."""
    align, found = create("align", fill_fields("align", name, hidden=16)), []
    for mixed in (False, True):
        x = features(apart=0.1).requires_grad_()
        step = make_aligned_step(align, x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            if find_optimizer(step.owned) is not None:
                align.compete(replace(step, clean=step.clean.detach()))
            loss = align.loss(step).terms["alignment"]
        loss.backward()
        owned = [] if step.owned is None else [p.grad for p in step.owned.parameters()]
        found.append([loss, x.grad, *owned])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("name", list_names("align"))
def test_every_alignment_is_built_from_its_settings(name):
    align = create("align", fill_fields("align", name, hidden=16))
    x = features().requires_grad_()
    step = make_aligned_step(align, x)
    if find_optimizer(step.owned) is not None:
        align.compete(replace(step, clean=step.clean.detach()))
    loss = align.loss(step)
    assert list(loss.terms) == ["alignment"]
    assert loss.metrics["mu"] == align.mu(0.5)
    assert set(loss.metrics) - {"mu"} == {metric.name for metric in align.metrics}
    loss.terms["alignment"].backward()
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("name", list_names("align"))
def test_an_alignment_says_whether_it_owns_an_optimiser(name):
    align = create("align", name)
    owned = align.build(Context(shape=(3,), classes=2, features=6, images=30))
    assert (find_optimizer(owned) is not None) == align.own_optimizer


@pytest.mark.parametrize(("features", "hidden"), [(6, 64), (128, 256), (256, 512), (900, 1024)])
def test_a_discriminator_that_follows_the_features(features, hidden):
    context = Context(shape=(3,), classes=2, features=features, images=30)
    for kind in (Adversarial, Reversal):
        assert kind(hidden="auto").build(context).d[2].weight.shape == (hidden, hidden)
        assert kind().build(context).d[2].weight.shape == (1024, 1024)
    z = Output(torch.zeros(30, 2), torch.randn(30, features, generator=torch.Generator().manual_seed(0)))
    rate = Optimisation().compute_rates(0.0).learning_rate
    for align, expected in (
        (Adversarial(hidden="auto"), rate / 3),
        (Adversarial(hidden="auto", learning_rate=0.01), 0.01),
        (Adversarial(), rate),
    ):
        owned = align.build(context)
        align.compete(make_step(None, make_batch(torch.zeros(10, 3), torch.zeros(20, 3)), z, owned=owned))
        assert owned.optimizer.param_groups[0]["lr"] == pytest.approx(expected)
        reversal = Reversal(hidden=align.hidden, learning_rate=align.learning_rate)
        assert reversal.own_rates(Optimisation().compute_rates(0.0)).learning_rate == pytest.approx(expected)


def test_settings_reach_the_alignment():
    context = Context(shape=(3,), classes=2, features=6, images=30)
    built = Adversarial(form="inverted", hidden=32, learning_rate=0.01).build(context)
    assert built.settings.form == "inverted"
    assert built.d[0].weight.shape == (32, 6)
    assert built.optimizer.param_groups[0]["lr"] == 0.01
    assert Reversal(hidden=32).build(context).d[2].weight.shape == (32, 32)


@pytest.mark.parametrize("form", ["minimax", "inverted", "unlabelled-only", "reversal", "mmd"])
def test_two_gaussians_meet_in_a_loop_of_ones_own(form):
    shift = nn.Parameter(torch.tensor([2.0, 0.0]))
    compete, align, owned = build(form, features=2, hidden=32, learning_rate=1e-2)
    along = list(owned.parameters()) if form == "reversal" else []
    optimizer = torch.optim.Adam([{"params": [shift], "lr": 0.02}, {"params": along, "lr": 1e-2}])
    labelled = torch.arange(96) < 32

    for _ in range(200):
        features = torch.randn(96, 2) + shift * ~labelled[:, None]
        compete(features.detach(), labelled)
        optimizer.zero_grad()
        align(features, labelled).backward()
        optimizer.step()

    assert float(shift.detach().norm()) < 0.8


def test_form_is_one_of_three():
    with pytest.raises(ValueError, match="form"):
        AdversarialAlignment(6, form="maximin")


def test_mmd_of_a_single_image_is_nothing():
    x = features().requires_grad_()
    loss = MMD(bandwidths=(1.0,)).compute_mmd2(x, 1)
    loss.backward()
    assert loss.item() == 0
    assert not x.grad.any()
