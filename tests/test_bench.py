"""The benchmark measures what it says. How fast anything is, is not tested."""

import json

import pytest
import torch

from afda.algorithm import steps
from afda.bench import MEANINGS, tasks
from afda.bench import steps as bench_steps
from afda.bench.bare import KNOWN, bare_step
from afda.bench.mmd import features, mmd_rows, products
from afda.bench.steps import SETTINGS, noise_images
from afda.bench.timing import Row, in_turns, ratio
from afda.choices import names
from afda.measures import mmd2
from afda.recipes import AFDA, recipe
from afda.runtime import Runtime
from afda.training import begin
from heavy_work import HeavyWork

CPU = Runtime(torch.device("cpu"))


def test_every_method_of_the_shelf_is_measured():
    assert set(KNOWN) == set(names("methods"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("align", ["none", "adversarial"])
@pytest.mark.parametrize("method", [*KNOWN, AFDA, "vat-on-all"])
def test_the_bare_loop_does_the_work_of_a_real_step(method, align, precision):
    """The same products, forwards and backwards, of the same shapes and precision, and the same updates."""
    data = noise_images(300)
    settings = ["labelled_batch=4", "unlabelled_batch=6", "net.width=0.03"]
    if method == "vat-on-all":
        method, settings = "vat", [*settings, 'method.vat.on="all"']
    made = recipe("svhn-ablation-cpu", data, method, align, labels=50).with_settings(settings)

    def worked(do, training):
        nets = [net for net in (training.nets.student, training.nets.teacher) if net is not None]
        before = [[p.detach().clone() for p in net.parameters()] for net in nets]
        with HeavyWork() as work:
            do()
        for net, was in zip(nets, before, strict=True):
            assert all(bool((a != b).any()) for a, b in zip(was, net.parameters(), strict=True))
        return work.done

    runtime = Runtime(CPU.device, precision)
    real, other = begin(made, data, runtime), begin(made, data, runtime)
    updates = steps(real)
    done = worked(lambda: next(updates), real)
    assert {name for name, *_ in done} >= {"convolution", "convolution_backward", "addmm", "mm", "_fused_adam_"}
    assert done == worked(bare_step(other), other)


def test_times_are_taken_in_turns_and_compared_round_by_round():
    order = []
    taken = in_turns(a=lambda: order.append("a"), b=lambda: order.append("b"))
    rounds = list(zip(order[::2], order[1::2], strict=True))
    assert rounds[0] == ("a", "b")
    assert all(set(one) == {"a", "b"} for one in rounds)
    assert len(set(rounds)) == 2  # both orders come up
    assert {len(t) for t in taken.values()} == {len(taken["a"])}
    assert ratio("x", [2.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == Row("x", 2.0, 0.5)


def test_mmd_is_compared_with_all_its_products():
    p, q = features(50)
    assert float(mmd2(p, q)) == pytest.approx(0, abs=0.01)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as ours:
        mmd2(p, q, bandwidth=1.0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as bare:
        products(p, q)()
    flops = [sum(e.flops for e in run.key_averages() if e.key == "aten::mm") for run in (ours, bare)]
    assert flops[0] == pytest.approx(flops[1] * (128 + 2) / 128)  # two columns more: the norms
    assert {row.name for row in mmd_rows(100)} == {"mmd_peak_mb", "mmd_ratio", "mmd_growth_exponent"}


def test_names(monkeypatch):
    found = set(tasks(CPU))
    assert {f"step_efficiency/{net}/{m}" for net in ("conv-large", "cpu") for m in KNOWN} <= found
    assert {"mmd", "help_seconds", "first_step_seconds", "predict_efficiency", "decode_efficiency"} <= found
    assert set(tasks(CPU, "step_efficiency/cpu/pi")) == {"step_efficiency/cpu/pi-model"}
    assert set(tasks(CPU, "alignment_price/cpu/pi-model")) == {"step_efficiency/cpu/pi-model"}
    assert set(tasks(CPU, "alignment_price/cpu/vat+entropy")) == {"step_efficiency/cpu/vat+entropy"}
    assert set(tasks(CPU, "mmd_ratio")) == set(tasks(CPU, "mmd")) == {"mmd"}
    assert set(tasks(CPU, "alignment")) == set(tasks(CPU, "step_efficiency"))
    assert set(tasks(CPU, "precision_gain/cpu/bfloat16")) == {"precision_gain/cpu"}
    assert set(tasks(CPU)) > set(tasks(CPU, "step")) > set(tasks(CPU, "step_efficiency"))
    monkeypatch.setattr("afda.bench.timing.SECONDS", 0)
    monkeypatch.setattr(bench_steps, "SETTINGS", {k: v for k, v in SETTINGS.items() if "compiled" not in k})
    rows = list(tasks(CPU, "precision_gain/cpu")["precision_gain/cpu"]())
    assert {row.name for row in rows} == {f"precision_gain/cpu/{s}" for s in bench_steps.SETTINGS}
    assert all(row.value > 0 for row in rows)
    monkeypatch.setattr(bench_steps, "fast_bfloat16", lambda _: True)
    (gain,) = tasks(CPU, "step_precision_gain/cpu/entropy")["step_precision_gain/cpu/entropy"]()
    assert gain.name == "step_precision_gain/cpu/entropy"
    assert {name.partition("/")[0] for name in found} - {"mmd"} <= set(MEANINGS)
    assert {row.name for row in mmd_rows(100)} <= set(MEANINGS)


def test_command(afda, monkeypatch):
    monkeypatch.setattr("afda.bench.timing.SECONDS", 0)
    code, said, _ = afda("bench", "--only", "help_seconds", "--json")
    (row,) = json.loads(said)["rows"]
    assert code == 0
    assert set(row) == {"name", "value", "spread"}
    assert row["name"] == "help_seconds"
    machine = json.loads(said)["machine"]
    assert machine["threads"] >= 1
    assert set(machine["precision"]) == {"conv-large", "conv-large/vat", "cpu", "cpu/vat"}
    assert set(machine["precision"].values()) <= {"float32", "bfloat16"}
    code, _, complaint = afda("bench", "--only", "nonsense")
    assert code == 2
    assert "nonsense" in complaint
    assert all(name in complaint for name in MEANINGS)


def test_a_benchmark_that_is_cut_off_prints_what_it_has(afda, monkeypatch):
    def cut_off():
        raise KeyboardInterrupt

    first = {"help_seconds": lambda: [Row("help_seconds", 1.0, 0.0)], "step_size_ratio": list}
    monkeypatch.setattr("afda.bench.tasks", lambda *_: {**first, "mmd": cut_off})
    code, said, told = afda("bench", "--json")
    assert code == 130
    assert [row["name"] for row in json.loads(said)["rows"]] == ["help_seconds"]
    assert "step_size_ratio cannot be measured on this machine." in told
