"""The benchmark compares the right work. Speed itself is not tested."""

import json

import pytest
import torch

from afda.experiments.bench import MEANINGS, list_tasks
from afda.experiments.bench import steps as bench_steps
from afda.experiments.bench.bare import METHODS, build_bare_step
from afda.experiments.bench.mmd import build_products, make_features, measure_mmd
from afda.experiments.bench.steps import SETTINGS, make_noise_images
from afda.experiments.bench.timing import Row, compute_ratio, measure_in_turns
from afda.machine.runtime import Runtime
from afda.measures import mmd2
from afda.recipes import AFDA, recipe
from afda.registry import list_names
from afda.training.loop import run_updates
from afda.training.state import begin
from heavy_work import HeavyWork

CPU = Runtime(torch.device("cpu"))


def test_the_measured_methods_exist():
    assert set(METHODS) <= set(list_names("methods"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("align", ["none", "adversarial"])
@pytest.mark.parametrize("method", [*METHODS, AFDA, "vat-on-all"])
def test_the_bare_loop_does_the_work_of_a_real_step(method, align, precision):
    """Count the same products, forward and backward, of the same shapes and precision, and the same updates."""
    data = make_noise_images(300)
    settings = ["labelled_batch=4", "unlabelled_batch=6", "net.width=0.03"]
    if method == "vat-on-all":
        method, settings = "vat", [*settings, 'method.vat.on="all"']
    made = recipe("svhn-ablation-cpu", data, method, align, labels=50).with_settings(settings)

    def count_work(run, training):
        nets = [net for net in (training.nets.student, training.nets.teacher) if net is not None]
        before = [[p.detach().clone() for p in net.parameters()] for net in nets]
        with HeavyWork() as work:
            run()
        for net, was in zip(nets, before, strict=True):
            assert all(bool((a != b).any()) for a, b in zip(was, net.parameters(), strict=True))
        return work.done

    runtime = Runtime(CPU.device, precision)
    real, other = begin(made, data, runtime), begin(made, data, runtime)
    updates = run_updates(real)
    done = count_work(lambda: next(updates), real)
    assert {name for name, *_ in done} >= {"convolution", "convolution_backward", "addmm", "mm", "_fused_adam_"}
    assert done == count_work(build_bare_step(other), other)


def test_times_are_taken_in_turns_and_compared_round_by_round():
    order = []
    taken = measure_in_turns(a=lambda: order.append("a"), b=lambda: order.append("b"))
    rounds = list(zip(order[::2], order[1::2], strict=True))
    assert rounds[0] == ("a", "b")
    assert all(set(one) == {"a", "b"} for one in rounds)
    assert len(set(rounds)) == 2  # both orders occur
    assert {len(t) for t in taken.values()} == {len(taken["a"])}
    assert compute_ratio("x", [2.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == Row("x", 2.0, 0.5)


def test_mmd_is_compared_with_all_its_products():
    p, q = make_features(50)
    assert float(mmd2(p, q)) == pytest.approx(0, abs=0.01)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as ours:
        mmd2(p, q, bandwidth=1.0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True) as bare:
        build_products(p, q)()
    flops = [sum(e.flops for e in run.key_averages() if e.key == "aten::mm") for run in (ours, bare)]
    assert flops[0] == pytest.approx(flops[1] * (128 + 2) / 128)  # the norms are two more columns
    assert {row.name for row in measure_mmd(100)} == {"mmd_peak_mb", "mmd_ratio", "mmd_growth_exponent"}


def test_every_row_has_a_meaning_and_can_be_selected(monkeypatch):
    names = set(list_tasks(CPU))
    assert {f"step_efficiency/{net}/{m}" for net in ("conv-large", "cpu") for m in METHODS} <= names
    others = {"mmd", "strong_view", "predict_efficiency", "decode_efficiency"}
    assert others | {"help_seconds", "first_step_seconds"} <= names
    assert set(list_tasks(CPU, "step_efficiency/cpu/pi")) == {"step_efficiency/cpu/pi-model"}
    assert set(list_tasks(CPU, "alignment_price/cpu/pi-model")) == {"step_efficiency/cpu/pi-model"}
    assert set(list_tasks(CPU, "alignment_price/cpu/vat+entropy")) == {"step_efficiency/cpu/vat+entropy"}
    assert set(list_tasks(CPU, "mmd_ratio")) == set(list_tasks(CPU, "mmd")) == {"mmd"}
    assert set(list_tasks(CPU, "alignment")) == set(list_tasks(CPU, "step_efficiency"))
    assert set(list_tasks(CPU, "precision_gain/cpu/bfloat16")) == {"precision_gain/cpu"}
    assert set(list_tasks(CPU)) > set(list_tasks(CPU, "step")) > set(list_tasks(CPU, "step_efficiency"))
    monkeypatch.setattr("afda.experiments.bench.timing.SECONDS", 0)
    monkeypatch.setattr(bench_steps, "SETTINGS", {k: v for k, v in SETTINGS.items() if "compiled" not in k})
    rows = list(list_tasks(CPU, "precision_gain/cpu")["precision_gain/cpu"]())
    assert {row.name for row in rows} == {f"precision_gain/cpu/{s}" for s in bench_steps.SETTINGS}
    assert all(row.value > 0 for row in rows)
    (view,) = list_tasks(CPU, "strong")["strong_view"]()
    assert view.name == "strong_view"
    assert view.value > 0
    monkeypatch.setattr(bench_steps, "has_fast_bfloat16", lambda _: True)
    (gain,) = list_tasks(CPU, "step_precision_gain/cpu/entropy")["step_precision_gain/cpu/entropy"]()
    assert gain.name == "step_precision_gain/cpu/entropy"
    assert {name.partition("/")[0] for name in names} - {"mmd"} <= set(MEANINGS)
    assert {row.name for row in measure_mmd(100)} <= set(MEANINGS)


def test_command_prints_rows_and_the_machine(afda, monkeypatch):
    monkeypatch.setattr("afda.experiments.bench.timing.SECONDS", 0)
    code, stdout, _ = afda("bench", "--only", "help_seconds", "--json")
    (row,) = json.loads(stdout)["rows"]
    assert code == 0
    assert set(row) == {"name", "value", "spread"}
    assert row["name"] == "help_seconds"
    machine = json.loads(stdout)["machine"]
    assert machine["threads"] >= 1
    assert set(machine["precision"]) == {"conv-large", "conv-large/vat", "cpu", "cpu/vat"}
    assert set(machine["precision"].values()) <= {"float32", "bfloat16"}
    code, _, stderr = afda("bench", "--only", "nonsense")
    assert code == 2
    assert "nonsense" in stderr
    assert all(name in stderr for name in MEANINGS)


def test_an_interrupted_benchmark_prints_its_rows(afda, monkeypatch):
    def cut_off():
        raise KeyboardInterrupt

    first = {"help_seconds": lambda: [Row("help_seconds", 1.0, 0.0)], "step_size_ratio": list}
    monkeypatch.setattr("afda.experiments.bench.list_tasks", lambda *_: {**first, "mmd": cut_off})
    code, stdout, stderr = afda("bench", "--json")
    assert code == 130
    assert [row["name"] for row in json.loads(stdout)["rows"]] == ["help_seconds"]
    assert "step_size_ratio cannot be measured on this machine." in stderr
