import copy
from dataclasses import replace

import pytest
import torch

from afda.methods import vat
from afda.methods.vat import VAT
from afda.nets import BatchNorm, Networks
from afda.nets.conv_large import ConvLarge
from afda.nets.shake_shake import ShakeShake
from contract import make_batch, make_step, replace_views
from heavy_work import HeavyWork

KEY = 1234


def images(seed, n, shape=(3, 32, 32)):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed)) - 0.5


def net(dropout=0.0):
    torch.manual_seed(0)
    return ConvLarge(width=1 / 8, dropout=dropout).build((3, 32, 32), 10)


def small(**fields):
    """A small problem: nets, a batch of 3 + 5 images and their clean pass."""
    torch.manual_seed(0)
    nets = Networks(ConvLarge(width=1 / 16, **fields).build((1, 8, 8), 4))
    batch = make_batch(images(1, 3, (1, 8, 8)), images(2, 5, (1, 8, 8)), KEY, torch.tensor([0, 1, 2]))
    return nets, batch, nets.run(batch.x, batch.u, key=KEY)


def compute_term(method, nets, batch, clean):
    return method.loss(make_step(nets, batch, clean)).terms["consistency"]


def cosine(a, b):
    """The mean cosine over images; no norm is clamped, however small."""
    a, b = (torch.cat([d.double().flatten(1) for d in directions]) for directions in (a, b))
    return float(((a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1))).mean())


@pytest.fixture
def same_start(monkeypatch):
    """Let every search begin in the same directions, which the generator would draw differently in float64."""
    random, true_normalise = torch.Generator().manual_seed(7), vat.normalise
    starts: dict[tuple[int, ...], torch.Tensor] = {}
    calls = []

    def normalise(d):
        if len(calls) < 2:
            start = starts.setdefault(tuple(d.shape), torch.randn(d.shape, generator=random, dtype=torch.float64))
            d = start.to(d.dtype)
        calls.append(d)
        return true_normalise(d)

    monkeypatch.setattr(vat, "normalise", normalise)
    return calls


def directions(student, method, calls, *, mixed=False):
    calls.clear()
    dtype = next(student.parameters()).dtype
    nets, x, u = Networks(student), images(1, 8).to(dtype), images(2, 24).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        with torch.no_grad():
            clean = nets.run(x, u, key=KEY).logits
        return method.find_worst_directions(nets, make_batch(x, u, KEY), clean)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_direction_survives_float32_and_the_published_probe_does_not(same_start, dropout):
    student = net(dropout)
    exact = directions(copy.deepcopy(student).double(), VAT(xi=1e-6), same_start)
    found = {xi: cosine(directions(student, VAT(xi=xi), same_start), exact) for xi in (1e-6, 1e-3, 1e-2)}
    assert found[1e-3] > 0.95
    assert found[1e-2] > 0.95
    assert found[1e-6] < 0.6
    assert VAT().xi == 1e-3
    mixed = directions(student, VAT(), same_start, mixed=True)
    assert {d.dtype for d in mixed} == {torch.float32}
    assert cosine(mixed, exact) > 0.9


def test_the_direction_is_that_of_the_largest_change():
    """Against the Hessian of the divergence, whose top eigenvector many iterations must find."""
    torch.manual_seed(0)
    student = ConvLarge(width=1 / 16, dropout=0).build((1, 8, 8), 4).double().eval()
    u = images(3, 2, (1, 8, 8)).double()
    clean = student(u).logits.detach()
    # The more iterations, the more of the top eigenvector.
    method, batch = VAT(iterations=30, xi=1e-4, on="unlabelled"), make_batch(u[:0], u, KEY)
    (found,) = method.find_worst_directions(Networks(student), batch, clean)
    for i in range(2):

        def divergence(d, i=i):
            log_p, log_q = clean[i].log_softmax(0), student(u[i : i + 1] + d).logits[0].log_softmax(0)
            return (log_p.exp() * (log_p - log_q)).sum()

        hessian = torch.autograd.functional.hessian(divergence, torch.zeros(1, 1, 8, 8, dtype=torch.float64))
        top = torch.linalg.eigh(hessian.view(64, 64)).eigenvectors[:, -1]
        assert abs(float(top @ found[i].flatten())) > 0.99


def test_no_pass_moves_running_statistics():
    nets, batch, clean = small()
    before = {k: v.clone() for k, v in nets.student.state_dict().items()}
    compute_term(VAT(iterations=2), nets, batch, clean)
    after = nets.student.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert all(int(m.num_batches_tracked) == 0 for m in nets.student.modules() if isinstance(m, BatchNorm))


@pytest.mark.parametrize("mixed", [False, True])
def test_the_probe_computes_no_gradients_of_weights(mixed):
    nets, batch, clean = small()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed), HeavyWork() as work:
        found = VAT().find_worst_directions(nets, batch, clean.logits.detach())
    given = {mask for name, _, mask in work.done if name == "convolution_backward"}
    assert given == {(True, False, False)}  # of the input, not of weight and bias
    assert all(p.grad is None for p in nets.student.parameters())
    assert not any(d.requires_grad for d in found)


def inputs_of(student):
    seen = []
    student.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    return seen


@pytest.mark.parametrize("radius", [0.1, 3.5])
@pytest.mark.parametrize("separate", [True, False])
def test_every_image_moves_by_the_radius(radius, separate):
    nets, batch, clean = small(dropout=0)
    nets = Networks(nets.student, separate=separate)
    seen = inputs_of(nets.student)
    compute_term(VAT(radius=radius), nets, batch, clean)
    both = torch.cat([batch.x, batch.u])
    probe, perturbed = (torch.cat(seen[:2]), torch.cat(seen[2:])) if separate else seen
    assert (probe - both).flatten(1).norm(dim=1).tolist() == pytest.approx([1e-3] * 8, rel=1e-2)
    assert (perturbed - both).flatten(1).norm(dim=1).tolist() == pytest.approx([radius] * 8, rel=1e-4)


def test_the_term_is_the_divergence_from_the_clean_predictions():
    nets, batch, clean = small(dropout=0)
    seen = inputs_of(nets.student)
    value = compute_term(VAT(radius=1.0, weight=0.3), nets, batch, clean)
    logits = torch.cat([nets.student(part).logits for part in seen[-2:]])
    by_hand = 0.0
    for z, perturbed in zip(clean.logits.tolist(), logits.tolist(), strict=True):
        p, q = torch.tensor(z, dtype=torch.float64).softmax(0), torch.tensor(perturbed, dtype=torch.float64).softmax(0)
        by_hand += float((p * (p / q).log()).sum()) / 8
    assert value.item() == pytest.approx(0.3 * by_hand, rel=1e-4)
    assert by_hand > 1e-3


def test_the_gradient_flows_through_the_perturbed_pass_only():
    nets, batch, clean = small(dropout=0)
    value = compute_term(VAT(), nets, batch, clean)
    clean.logits.retain_grad()
    value.backward()
    assert clean.logits.grad is None
    assert all(p.grad is not None and p.grad.isfinite().all() for p in nets.student.parameters())


def test_shared_noise_makes_the_divergence_a_matter_of_the_perturbation():
    nets, batch, clean = small(dropout=0.5)
    shared = compute_term(VAT(radius=1e-30), nets, batch, clean)
    assert shared.item() == pytest.approx(0, abs=1e-9)
    fresh = compute_term(VAT(radius=1e-30, noise="fresh"), nets, batch, clean)
    assert fresh.item() > 1e-3


def test_on_unlabelled_leaves_labelled_images_out():
    nets, batch, clean = small(dropout=0)
    seen = inputs_of(nets.student)
    value = compute_term(VAT(on="unlabelled"), nets, batch, clean)
    assert [len(x) for x in seen] == [5, 5]
    logits = nets.student(seen[-1]).logits
    torch.testing.assert_close(value, vat.losses.kl_divergence(clean.logits[3:], logits))


def test_directions_are_unit_vectors_of_the_shape_of_the_images():
    nets, batch, clean = small()
    found = VAT(iterations=2).find_worst_directions(nets, batch, clean.logits.detach())
    assert [d.shape for d in found] == [batch.x.shape, batch.u.shape]
    for d in found:
        assert d.flatten(1).norm(dim=1).tolist() == pytest.approx([1.0] * len(d), abs=1e-4)
    again = VAT(iterations=2).find_worst_directions(nets, batch, clean.logits.detach())
    assert all(map(torch.equal, found, again))
    other = VAT(iterations=2).find_worst_directions(nets, replace_views(batch, key=KEY + 10), clean.logits.detach())
    assert not torch.equal(found[0], other[0])


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e30])
def test_normalise_vectors_of_any_size(size):
    d = size * torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = d.double() / d.double().flatten(1).norm(dim=1)[:, None, None, None]
    torch.testing.assert_close(vat.normalise(d).double(), expected, rtol=1e-3, atol=0)
    assert not vat.normalise(torch.zeros(2, 3)).any()


@pytest.mark.parametrize("on", ["all", "unlabelled"])
@pytest.mark.parametrize("separate", [True, False])
def test_a_repeated_pass_is_the_clean_pass(separate, on):
    """Same noise and same statistics, so that a step of no length changes nothing."""
    nets, batch, _ = small(dropout=0.5)
    nets = replace(nets, separate=separate)
    clean = nets.run(batch.x, batch.u, key=KEY)
    still = [torch.zeros_like(batch.x), torch.zeros_like(batch.u)]
    again = VAT(on=on).run_perturbed(nets, batch, still, 0.0).logits
    assert torch.equal(again, clean.logits if on == "all" else clean.logits[len(batch.x) :])


def test_the_direction_on_shake_shake_is_that_of_the_true_gradient():
    """In training its gradient is false on purpose; the probe asks for the true one."""
    torch.manual_seed(0)
    student = ShakeShake(width=1 / 24).build((3, 16, 16), 10).double()
    u = images(5, 6, (3, 16, 16)).double()
    batch, nets = make_batch(u[:0], u, KEY), Networks(student)
    clean = nets.run(None, u, key=KEY).logits.detach()
    method = VAT(on="unlabelled", xi=1e-4)
    (found,) = method.find_worst_directions(nets, batch, clean)

    def divergence(direction):
        logits = method.run_perturbed(nets, batch, [direction], 1e-2).logits
        return float(vat.losses.kl_divergence(clean, logits.detach()))

    drawn = [torch.randn(u.shape, generator=torch.Generator().manual_seed(s)).double() for s in range(20)]
    assert divergence(found) > 1.5 * max(divergence(vat.normalise(d)) for d in drawn)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 12)])
def test_a_radius_per_root_of_the_number_of_inputs(shape):
    """The same loss as with the absolute radius that it stands for; each input changes as much on average."""
    torch.manual_seed(0)
    nets = Networks(ConvLarge(width=1 / 16, dropout=0).build(shape, 4))
    batch = make_batch(images(1, 3, shape), images(2, 5, shape), KEY)
    clean = nets.run(batch.x, batch.u, key=KEY)
    root = VAT(radius=0.2, scale="root", xi=0.1)
    expected = 0.2 * (shape[0] * shape[1] * shape[2]) ** 0.5
    assert root.norm(batch.u) == expected
    assert torch.equal(
        compute_term(root, nets, batch, clean), compute_term(VAT(radius=expected, xi=0.1), nets, batch, clean)
    )
    assert VAT(radius=0.2).norm(batch.u) == 0.2
