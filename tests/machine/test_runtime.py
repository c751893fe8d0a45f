"""The precision of passes: what is emulated is what hardware with bfloat16 would compute."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from afda.machine.runtime import EmulatedProducts, Runtime, select_runtime
from afda.nets.conv_large import ConvLarge
from afda.nets.mlp import MLP

IMAGES = torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(0))


@contextlib.contextmanager
def emulated():
    with torch.autocast("cpu", dtype=torch.bfloat16), EmulatedProducts():
        yield


def passed(net, how):
    """Logits and all gradients of a pass."""
    torch.manual_seed(1)
    with how:
        logits = net(IMAGES).logits
        loss = F.cross_entropy(logits.float(), torch.arange(6))
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    return logits.detach(), torch.cat([g.flatten() for g in gradients])


def off(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())


@pytest.mark.parametrize("made", [ConvLarge(width=0.125), MLP(hidden=32)], ids=["conv-large", "mlp"])
def test_emulated_bfloat16_is_torchs_own(made):
    torch.manual_seed(0)
    net = made.build((3, 12, 12), 10).train()
    mine = passed(net, emulated())
    native = passed(net, torch.autocast("cpu", dtype=torch.bfloat16))
    full = passed(net, contextlib.nullcontext())
    assert mine[0].dtype == native[0].dtype
    for ours, theirs, exact in zip(mine, native, full, strict=True):
        # Sums in another order are rounded another way now and then, and a little of that comes out at the end.
        assert off(ours, theirs) < off(ours, exact) / 4
        assert off(ours, exact) > 0.001  # it is not float32 in disguise


@pytest.mark.parametrize("hardware", [False, True])
def test_only_a_machine_without_bfloat16_emulates_it(monkeypatch, hardware):
    monkeypatch.setattr("afda.machine.runtime.has_fast_bfloat16", lambda _: hardware)
    used = []
    monkeypatch.setattr(EmulatedProducts, "__torch_function__", lambda _, func, *__, **___: used.append(func))
    machine = Runtime(torch.device("cpu"), "bfloat16")
    x, w = torch.ones(1, 2), torch.ones(3, 2)
    with machine.autocast():
        F.linear(x, w)
    assert bool(used) == (not hardware) == machine.describe().emulated


def test_what_leaves_autocast_is_not_rounded():
    net = MLP(hidden=32).build((3, 12, 12), 10).eval()
    with emulated(), torch.autocast("cpu", enabled=False):
        inside = net(IMAGES).logits
    assert torch.equal(inside, net(IMAGES).logits)


def test_float32_is_not_rounded_by_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    select_runtime("cpu")
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
