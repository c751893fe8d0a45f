"""Evaluations during a training are a small share of its work, counted in images."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from afda.data.images import DataSet, Images
from afda.machine.runtime import select_runtime
from afda.recipes import recipe
from afda.runs import results
from afda.training import budget
from afda.training.baseline import make_baseline
from afda.training.evaluations import PASSES_PER_UPDATE, count_evaluated, plan_evaluations
from afda.training.run import train

CPU = select_runtime("cpu", "float32")


def make_folder(labelled=100, unlabelled=3500, held_out=200, side=48):
    """Return data with as many images as a folder of photos has."""
    random = torch.Generator().manual_seed(0)

    def make(n, y):
        return Images(torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=random), y)

    y = torch.cat([torch.arange(labelled) % 5, torch.full((unlabelled,), -1)])
    held = [make(held_out, torch.arange(held_out) % 5) for _ in range(2)]
    return DataSet("folder", tuple("abcde"), make(labelled + unlabelled, y), val=held[0], test=held[1])


def make_recipes(data, steps):
    made = recipe("own-images", data).with_settings([f"steps={steps}", "net=mlp", "align=none"])
    return made, make_baseline(made)


@pytest.mark.parametrize("steps", [300, 1000, 4000])
def test_evaluations_are_a_small_share_of_the_work(steps):
    data = make_folder()
    for made in make_recipes(data, steps):
        split = made.split_of(data)
        evaluated = plan_evaluations(made, data, split).count_images(count_evaluated(data, split)[:3])
        passes = PASSES_PER_UPDATE * made.steps * made.images_per_step
        assert evaluated <= max(6_000_000 / 48**2, passes / 30)


def test_long_trainings_are_evaluated_twenty_times_on_two_thousand_images():
    data = make_folder()
    made, _ = make_recipes(data, 30_000)
    plan = plan_evaluations(made, data, made.split_of(data))
    assert (plan.interval, plan.sample) == (5, 2000)


def test_tiny_images_are_all_evaluated(digits):
    made, baseline = (make(recipe("own-images", digits, labels=50)) for make in (lambda made: made, make_baseline))
    for one in (made, baseline):
        plan = plan_evaluations(one, digits, one.split_of(digits))
        assert (plan.interval, plan.sample) == (5, 2000)


def test_a_training_evaluates_as_many_images_as_planned(tmp_path, monkeypatch):
    data, counted = make_folder(), []
    made, _ = make_recipes(data, 100)
    original = results.compute_outputs

    def count(model, x, runtime, rows=None):
        counted.append(len(x) if rows is None else len(rows))
        return original(model, x, runtime, rows=rows)

    monkeypatch.setattr(results, "compute_outputs", count)
    run = train(made, data, tmp_path / "run", on=CPU)
    split = made.split_of(data)
    plan = plan_evaluations(made, data, split)
    final = sum(count_evaluated(data, split))
    assert sum(counted) == plan.count_images(count_evaluated(data, split)[:3]) + final
    lines = [line.step for line in run.log.read() if "val_error" in line.values]
    assert lines == list(range(plan.interval, 101, plan.interval))


def test_evaluations_do_not_change_the_weights(tmp_path, monkeypatch):
    data = make_folder(unlabelled=300, held_out=20)
    made, _ = make_recipes(data, 20)
    weights = []
    for number, sample in enumerate((10, 2000)):
        with monkeypatch.context() as patch:
            patch.setattr("afda.training.evaluations.SAMPLES", (sample,))
            patch.setattr("afda.training.evaluations.INTERVALS", (5 + 5 * number,))
            run = train(made, data, tmp_path / str(number), on=CPU)
            weights.append((run.path / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("per_step", [0.01, 0.05, 0.2])
def test_three_minutes_are_spent_on_updates(monkeypatch, per_step):
    """At least 80 % of the time, with the costs of a folder of 3,500 photos on two cores."""
    data, clock = make_folder(), [0.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: clock[0])
    recipes = make_recipes(data, 1)
    shares = [per_step, per_step / 4]

    def measure(training, per_image=None):
        clock[0] += 2.5  # of which a second is the warm-up
        step = shares[0] if training.recipe.uses_unlabelled else shares[1]
        # FixMatch's update: three passes of 16 labelled images, four of 64 unlabelled ones
        return budget.Costs(step, per_step / (3 * 16 + 4 * 64), preparation=0.1)

    monkeypatch.setattr(budget, "measure_costs", measure)
    steps = budget.fit_steps(3, recipes, data, CPU, started=-10.0)  # ten seconds to decode the photos
    assert steps * sum(shares) >= 0.8 * 180


def test_steps_are_found_for_any_costs():
    assert budget.find_most_steps(lambda steps: 2.0 * steps, 9) == 4
    assert budget.find_most_steps(lambda steps: 10 + steps, 9) == 0
    assert budget.find_most_steps(lambda steps: 0.0, 9) == 10**9


def test_the_cost_of_evaluating_is_measured_once_per_net(monkeypatch):
    data, measured = make_folder(unlabelled=300), []
    monkeypatch.setattr(budget, "measure_step_seconds", lambda _: 0.01)
    monkeypatch.setattr(budget, "measure_evaluation_seconds", lambda training: measured.append(training) or 1e-6)
    made, baseline = make_recipes(data, 1)
    budget.fit_steps(1, [made, baseline], data, CPU)
    assert len(measured) == 1
    budget.fit_steps(1, [made, baseline.with_settings(["net.hidden=8"])], data, CPU)
    assert len(measured) == 3


def test_held_out_labels_are_counted():
    data = replace(make_folder(), val=None)
    made = make_recipes(data, 10)[0].with_settings(["labels=40", "validation=true"])
    assert count_evaluated(data, made.split_of(data)) == [40, 3520, 40, 200]
    assert np.sum(count_evaluated(data, made.split_of(data))) == 3800
