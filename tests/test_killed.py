"""Trainings, sweeps and searches that are killed end as if nothing had happened."""

import json
import random
import signal
from collections import Counter
from itertools import product

import numpy as np
import pytest
import victims

from afda.recipes import recipe
from afda.runs import Run

LIGHT = ["labels=20", "labelled_batch=4", "unlabelled_batch=8", "net=mlp", "net.hidden=16", "net.features=8", "data=few"]
METHODS = ("supervised", "pi-model", "mean-teacher", "vat", "vat+entropy")
ALIGNS = ("adversarial", "none", "reversal", "mmd")
WAYS = list(product(METHODS, ALIGNS))
OPTIONS = (
    ("--no-baseline",),
    ("--no-baseline", "--snapshots"),
    ("--no-baseline", "--validation"),
    ("--baseline",),
    ("--baseline", "--snapshots", "--validation"),
)


@pytest.fixture(scope="module")
def few(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "few.npz"
    x, y = digits.train.x[:, 0].numpy(), digits.train.y.numpy()
    np.savez(path, x=x[:200], y=y[:200], x_test=x[200:260], y_test=y[200:260])
    return path


class Case:
    """One training as a user would start it."""

    def __init__(self, digits, few, folder, number):
        method, align = WAYS[number % len(WAYS)]
        small = ["align.hidden=8"] if align in ("adversarial", "reversal") else []
        settings = [*LIGHT, *small, f"steps={8 + number % 5}", f"seed={number}"]
        folder.mkdir()
        (folder / "recipe.json").write_text(recipe("digits-demo", digits, method, align).with_settings(settings).to_json())
        self.command = ["train", few, "--recipe", folder / "recipe.json", "--quiet", *OPTIONS[number % len(OPTIONS)]]
        self.folder = folder
        # With a checkpoint after each step, or with none but the first and the last.
        self.checkpoint_seconds = 60.0 if number % 4 == 3 else -1.0

    def start(self, name, kill_at=None, tally=None):
        out = self.folder / name
        command = [*self.command, "--out", out, *(["--resume"] if (out / "recipe.json").exists() else [])]
        return victims.start(command, kill_at, self.checkpoint_seconds, tally)

    def finish(self, name, tally=None):
        process = self.start(name, tally=tally)
        process.join()
        assert process.exitcode == 0
        return everything(self.folder / name)

    def whole(self):
        """What an uninterrupted run leaves, and all that it does on the way."""
        left = self.finish("whole", str(self.folder / "tally"))
        return left, json.loads((self.folder / "tally").read_text())


def everything(folder):
    """All that is in a folder of runs, but for the time it took and where it was."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"):
        name = str(path.relative_to(folder))
        if path.name == "log.jsonl":
            found[name] = [{k: v for k, v in line.items() if k != "seconds"} for line in Run(path.parent).log()]
            assert len(found[name]) == path.read_text().count("\n")
        elif path.name == "result.json":
            result = json.loads(path.read_text())
            found[name] = {k: v for k, v in result.items() if k not in ("seconds", "images_per_second")}
        else:
            found[name] = path.read_bytes()
    return found


def killed_and_resumed(case, name, kills):
    """Kill a training at each of these moments, if it gets there, and let it end. Returns which were reached."""
    reached = []
    for moment in kills:
        process = case.start(name, moment)
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), moment
        if process.exitcode:
            reached.append(moment[0])
    return reached, case.finish(name)


def test_killed_at_each_kind_of_moment(digits, few, tmp_path):
    case = Case(digits, few, tmp_path / "case", 4)  # with snapshots, validation images and a baseline
    whole, did = case.whole()
    assert {"supervised-only/result.json", "model.safetensors"} <= set(whole)
    steps = did["before a step"]
    moments = [
        ("after a step", 5),
        ("torn checkpoint.pt", 7),
        ("torn log.jsonl", 3),
        ("before an evaluation", did["before an evaluation"] // 2),
        ("before moving result.json", 1),
        ("before removing checkpoint.pt", 1),
    ]
    assert steps == 24
    for i, moment in enumerate(moments):
        reached, left = killed_and_resumed(case, str(i), [moment])
        assert reached == [moment[0]]
        assert left == whole, moment


@pytest.mark.soak
def test_a_hundred_trainings_killed(digits, few, tmp_path):
    """Three in four at a moment chosen among all kinds of them, the others after a random part of their time."""
    choose, landed = random.Random(0), Counter()
    for number in range(20):
        case = Case(digits, few, tmp_path / f"{number}", number)
        whole, did = case.whole()
        for again in range(5):
            names = choose.choices(sorted(did), k=choose.randint(1, 3))
            kills = [(name, choose.randint(1, did[name])) for name in names]
            if again == 4:
                landed["at a random time"] += killed_at_random_times(case, f"{again}", choose)
                kills = []
            reached, left = killed_and_resumed(case, f"{again}", kills)
            landed.update(reached)
            assert left == whole, (number, kills)
    print("\n".join(f"{count:4} {name}" for name, count in sorted(landed.items())), f"\n{landed.total()} kills")
    assert landed.total() >= 100


def killed_at_random_times(case, name, choose):
    kills = 0
    for _ in range(3):
        process = case.start(name)
        process.join(choose.uniform(0.05, 1.0))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    return kills
