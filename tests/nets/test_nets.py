import pytest
import torch
from torch import nn

from afda.align.adversarial import build_discriminator
from afda.machine.runtime import Runtime, has_fast_bfloat16
from afda.nets import BatchNorm, Classifier, Dropout, Normaliser
from afda.nets.conv_large import ConvLarge
from afda.nets.shake_shake import Block, ShakeShake, ShiftedSkip, shake
from afda.nets.wrn_28_2 import WRN282, Unit
from afda.registry import find_plugin, list_names
from afda.runs.model import Model, compute_outputs, fold_batchnorm

IMAGE = (3, 32, 32)


def parameters(net):
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("net", "count", "features"),
    [
        (ConvLarge(), 3_121_802, 128),
        (ConvLarge(top_norm=True), 3_121_822, 128),
        (WRN282(), 1_467_610, 128),
        (ShakeShake(), 26_193_466, 384),
        (ShakeShake(heads=2), 26_197_316, 384),
    ],
)
def test_sizes_are_the_published_ones(net, count, features):
    built = net.build(IMAGE, 10)
    with torch.no_grad():
        found = built.f(torch.zeros(2, *IMAGE))
    assert parameters(built) == count
    assert found.shape == (2, features)
    assert built.features == features


@pytest.mark.parametrize(("features", "count"), [(128, 1_182_721), (384, 1_444_865)])
def test_the_discriminator_has_the_paper_size_and_no_normalisation(features, count):
    d = build_discriminator(features, 1024)
    assert parameters(d) == count
    assert {type(m) for m in d} == {nn.Linear, nn.ReLU}


def test_width_multiplies_channels():
    def channels(width):
        with torch.device("meta"):
            net = ConvLarge(width=width).build(IMAGE, 10)
        return [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)]

    assert channels(1) == [128, 128, 128, 256, 256, 256, 512, 256, 128]
    assert channels(0.125) == [16, 16, 16, 32, 32, 32, 64, 32, 16]
    for net, features in ((WRN282(width=0.25), 32), (ShakeShake(width=0.0625), 24)):
        assert net.build(IMAGE, 10)(torch.zeros(2, *IMAGE)).features.shape == (2, features)


def heights(net, shape):
    """The height of the output of every convolution."""
    built, found = net.build(shape, 10), []
    for module in built.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, inputs, output: found.append(output.shape[2]))
    built(torch.zeros(2, *shape))
    return found


def test_spatial_sizes_of_conv_large():
    assert heights(ConvLarge(width=1 / 16), IMAGE) == [32, 32, 32, 16, 16, 16, 6, 6, 6]
    assert heights(ConvLarge(width=1 / 16), (1, 12, 12)) == [12, 12, 12, 6, 6, 6, 1, 1, 1]
    assert heights(ConvLarge(width=1 / 16), (1, 8, 8)) == [8, 8, 8, 4, 4, 4, 2, 2, 2]


def test_residual_nets_halve_twice():
    for net in (WRN282(width=1 / 8), ShakeShake(width=1 / 48)):
        found = heights(net, IMAGE)
        assert sorted(set(found), reverse=True) == [32, 16, 8]
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("name", ["conv-large", "shake-shake", "small", "wrn-28-2"])
@pytest.mark.parametrize("width", [0.01, 0.05, 0.125])
def test_the_narrowest_nets_learn_too(name, width):
    net = find_plugin("nets", name)(width=width).build((3, 8, 8), 4).to(memory_format=torch.channels_last)
    net(torch.randn(5, 3, 8, 8).contiguous(memory_format=torch.channels_last)).logits.square().sum().backward()
    assert net.g.weight.grad.isfinite().all()


def test_normalisation_is_as_published():
    def norms(net):
        return {(m.eps, m.momentum) for m in net.build(IMAGE, 10).modules() if isinstance(m, BatchNorm)}

    assert norms(ConvLarge(width=1 / 16, top_norm=True)) == {(1e-6, 0.01)}
    assert norms(WRN282(width=1 / 8)) == {(1e-3, 0.001)}
    assert norms(ShakeShake(width=1 / 48)) == {(1e-5, 0.1)}
    assert not any(m.bias is not None for m in ConvLarge(width=1 / 16).build(IMAGE, 10).f if isinstance(m, nn.Conv2d))


def test_only_the_first_unit_of_the_wide_resnet_shares_its_activation():
    units = [m for m in WRN282(width=1 / 8).build(IMAGE, 10).f if isinstance(m, Unit)]
    assert [u.shared_activation for u in units] == [True] + [False] * 11
    for unit in (units[0], units[4]):
        x = torch.randn(4, unit.shortcut.in_channels, 6, 6)
        short = unit(x) - unit.body(unit.enter(x))
        came = unit.enter(x) if unit is units[0] else x
        expected = nn.functional.conv2d(came, unit.shortcut.weight, stride=1 if unit is units[0] else 2)
        torch.testing.assert_close(short, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", list_names("nets"))
def test_every_net_starts_from_the_global_seed(name):
    shape = (12,) if name == "mlp" else IMAGE
    fields = {"width": 1 / 16} if "width" in find_plugin("nets", name).model_fields else {}

    def weights(seed):
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(find_plugin("nets", name)(**fields).build(shape, 3).parameters())

    assert torch.equal(weights(0), weights(0))
    if name == "linear":  # a convex problem, which begins at zero
        assert not weights(0).any()
    else:
        assert not torch.equal(weights(0), weights(1))


def test_he_initialisation_of_conv_large():
    torch.manual_seed(0)
    net = ConvLarge().build(IMAGE, 10)
    weight = net.f[3].weight
    limit = 2 * (1.3 * 2 / (128 * 9)) ** 0.5
    # A normal cut at two deviations keeps 0.8796 of its deviation.
    assert float(weight.detach().std()) == pytest.approx(0.8796 * limit / 2, rel=0.01)
    assert float(weight.detach().abs().max()) <= limit
    assert not net.g.bias.any()


def test_shake_mixes_anew_in_the_backward_pass():
    torch.manual_seed(0)
    first, second = torch.ones(64, 2, 3, 3, requires_grad=True), torch.zeros(64, 2, 3, 3, requires_grad=True)
    mixed = shake(first, second, training=True)
    forward = mixed[:, 0, 0, 0].detach()
    assert torch.equal(mixed, forward[:, None, None, None].expand_as(mixed))
    assert len(forward.unique()) == 64
    assert 0 < float(forward.min()) < 0.2
    assert 0.8 < float(forward.max()) < 1
    upstream = torch.randn_like(mixed)
    mixed.backward(upstream)
    backward = (first.grad / upstream)[:, 0, 0, 0]
    torch.testing.assert_close(first.grad, backward[:, None, None, None] * upstream)
    torch.testing.assert_close(first.grad + second.grad, upstream)
    assert abs(float(torch.corrcoef(torch.stack([forward, backward]))[0, 1])) < 0.4
    assert len(backward.unique()) == 64


def test_shake_mixes_evenly_in_evaluation():
    first, second = torch.randn(2, 4, 2, 3, 3, requires_grad=True)
    mixed = shake(first, second, training=False)
    torch.testing.assert_close(mixed, (first + second) / 2)
    torch.autograd.backward(mixed.sum())
    block = Block(4, 4, stride=1).eval()
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(block(x), x + 0.5 * block.first(x) + 0.5 * block.second(x))


def test_the_halving_skip_of_shake_shake_samples_twice_one_pixel_apart():
    skip = ShiftedSkip(1, 2).eval()
    nn.init.ones_(skip.conv.weight)
    nn.init.zeros_(skip.conv.bias)
    x = torch.arange(1.0, 17).view(1, 1, 4, 4)
    x[0, 0, 3, 3] = -5
    expected = torch.tensor([[[1.0, 3], [9, 11]], [[6, 8], [14, 0]]])
    torch.testing.assert_close(skip(x)[0], expected / (1 + 1e-5) ** 0.5)


def test_the_second_head_is_a_linear_layer_of_its_own():
    net = ShakeShake(width=1 / 48, heads=2).build((3, 8, 8), 10)
    output = net(torch.randn(4, 3, 8, 8))
    torch.testing.assert_close(output.second, net.g_second(output.features))
    torch.testing.assert_close(output.logits, net.g(output.features))
    assert not torch.equal(output.second, output.logits)
    half = output.rows(slice(2, None))
    assert [len(part) for part in half[:3]] == [2, 2, 2]
    assert torch.equal(half.second, output.second[2:])


def test_the_folded_layer_is_what_g_does_in_evaluation():
    torch.manual_seed(0)
    for top_norm in (False, True):
        net = Classifier(nn.Flatten(), 6, 4, top_norm=top_norm)
        if top_norm:
            for tensor in (net.g_norm.weight, net.g_norm.bias, net.g_norm.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(net.g_norm.running_var, 0.5, 2)
        net.eval()
        x = torch.randn(5, 6)
        weight, bias = net.fold_linear()
        torch.testing.assert_close(net(x).logits, x @ weight.T + bias)
        assert not weight.requires_grad
        assert not bias.requires_grad


@pytest.mark.parametrize(("p", "of_256"), [(0.5, 128), (0.25, 64), (0.3, 77)])
def test_dropout_rate_and_scale(p, of_256):
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(400, 1000))
    kept = dropped != 0
    assert float(kept.float().mean()) == pytest.approx(1 - of_256 / 256, abs=0.003)
    assert dropped[kept].unique().tolist() == pytest.approx([256 / (256 - of_256)])
    # Neighbours, which share a random number, are dropped independently of each other.
    pairs = kept.view(-1, 8).float().T
    correlations = torch.corrcoef(pairs) - torch.eye(8)
    assert float(correlations.abs().max()) < 0.02


def test_dropout_near_one_keeps_something():
    torch.manual_seed(0)
    assert Dropout(0.9999)(torch.ones(100, 100)).any()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_masks_depend_on_the_seed_and_not_on_the_precision(layout):
    def mask(dtype, seed=0):
        torch.manual_seed(seed)
        x = torch.ones(3, 5, 7, 9, dtype=dtype).contiguous(memory_format=layout)
        dropped = Dropout()(x)
        assert dropped.is_contiguous(memory_format=layout)
        assert dropped.dtype == dtype
        return dropped != 0

    assert torch.equal(mask(torch.float32), mask(torch.bfloat16))
    assert torch.equal(mask(torch.float32), mask(torch.float64))
    assert not torch.equal(mask(torch.float32), mask(torch.float32, seed=1))


def test_dropout_gradients_are_masked_alike():
    x = torch.randn(20, 30, requires_grad=True)
    dropped = Dropout(0.25)(x)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad * x, dropped)
    assert 0 < int((x.grad == 0).sum()) < x.numel()


def test_dropout_in_evaluation_or_of_nothing_is_the_identity():
    x = torch.randn(5, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize(("torchs", "shape"), [(nn.BatchNorm1d, (8, 5)), (nn.BatchNorm2d, (8, 5, 3, 3))])
def test_batch_norm_against_torchs(torchs, shape):
    ours, theirs = BatchNorm(5, eps=1e-3, momentum=0.3), torchs(5, eps=1e-3, momentum=0.3)
    for norm in (ours, theirs):
        torch.manual_seed(0)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)

    def buffers(norm):
        return [b.clone() for b in norm.buffers()]

    before = buffers(ours)
    x, other = 3 + 2 * torch.randn(2, *shape)
    expected = theirs(x)
    torch.testing.assert_close(ours(x), expected)
    assert all(map(torch.equal, buffers(ours), before))

    ours.track = True
    torch.testing.assert_close(ours(x), expected)
    assert all(map(torch.equal, buffers(ours), buffers(theirs)))
    assert not torch.equal(ours.running_mean, before[0])

    for track in (False, True):
        ours.eval().track = track
        torch.testing.assert_close(ours(other), theirs.eval()(other))
        assert all(map(torch.equal, buffers(ours), buffers(theirs)))


def test_a_pass_tracks_only_when_asked():
    net = ConvLarge(width=1 / 16, top_norm=True).build((1, 8, 8), 3)
    x = torch.randn(4, 1, 8, 8)
    counts = [m.num_batches_tracked for m in net.modules() if isinstance(m, BatchNorm)]
    for track, expected in ((False, 0), (True, 1), (False, 1), (True, 2)):
        net(x, track=track)
        assert [int(c) for c in counts] == [expected] * 10


@pytest.mark.parametrize("name", list_names("nets"))
def test_evaluation_with_folded_normalisation_gives_the_same(name, monkeypatch):
    torch.manual_seed(0)
    shape = IMAGE if name != "small" else (1, 8, 8)
    net = find_plugin("nets", name)().build(shape, 10)
    for module in net.modules():
        if isinstance(module, BatchNorm):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias)
    model = Model(Normaliser(torch.tensor(127.5), torch.tensor(1 / 255)), net, tuple("0123456789"))
    x = torch.randint(0, 256, (6, *shape), dtype=torch.uint8)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    used = []
    monkeypatch.setattr("afda.runs.model.fold_batchnorm", lambda given: used.append(given) or fold_batchnorm(given))
    found = compute_outputs(model, x, Runtime(torch.device("cpu")), batch=4)
    assert used == [model]
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    norms = [sum(isinstance(m, BatchNorm) for m in of.modules()) for of in (model, fold_batchnorm(model))]
    assert norms[1] < norms[0] or name == "linear"  # which has none
    assert norms[1] == 0 or name not in ("conv-large", "small")
    with torch.no_grad():
        plain = model.double().eval()(x)
        exact = fold_batchnorm(model)(x)
    for part in ("logits", "features"):
        expected = getattr(plain, part)
        torch.testing.assert_close(getattr(exact, part), expected)
        torch.testing.assert_close(getattr(found, part).double(), expected, rtol=0, atol=1e-5 * expected.abs().max())


@pytest.mark.parametrize("name", [name for name in list_names("nets") if name not in ("mlp", "linear")])
def test_where_a_pass_in_bfloat16_begins_and_ends_it_is_in_full_precision(name):
    torch.manual_seed(0)
    student, x, seen = find_plugin("nets", name)(width=0.25).build(IMAGE, 10), torch.randn(4, *IMAGE), []
    first, *others = (module for module in student.modules() if isinstance(module, nn.Conv2d))
    for convolution in (first, others[0]):
        convolution.register_forward_hook(lambda _, __, y: seen.append(y))
    with Runtime(torch.device("cpu"), "bfloat16").autocast():
        logits, features = student(x)[:2]
    assert torch.equal(seen[0], first(x))
    assert torch.equal(logits, student.g(features))
    assert seen[1].dtype == torch.bfloat16
    assert not torch.equal(features, features.bfloat16().float())


def test_automatic_precision_follows_the_machine_and_the_width(monkeypatch):
    machine = Runtime(torch.device("cpu"), "auto")
    wide, narrow = ConvLarge(width=0.25).build(IMAGE, 10), ConvLarge(width=0.125).build(IMAGE, 10)
    assert machine.choose_precision(wide).precision == ("bfloat16" if has_fast_bfloat16(machine.device) else "float32")
    monkeypatch.setattr("afda.machine.runtime.has_fast_bfloat16", lambda _: True)
    assert machine.choose_precision(wide).precision == "bfloat16"
    assert machine.choose_precision(wide, gains_little=True).precision == "float32"
    assert machine.choose_precision(narrow).precision == "float32"
    assert machine.choose_precision(WRN282().build(IMAGE, 10)).precision == "bfloat16"  # the first is narrow
    assert Runtime(torch.device("cpu"), "float32").choose_precision(wide).precision == "float32"
