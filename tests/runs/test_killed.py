"""Trainings, sweeps and searches that are killed end as if nothing had happened."""

import json
import os
import random
import signal
from collections import Counter
from itertools import product

import pytest

import victims
from afda.runs.directory import Run
from victims import everything, light

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
KINDS = ("a step", "an evaluation", "checkpoint", "log.jsonl", "model", "result.json", "")
"""Words in the names of moments; the last is in all of them."""


class Case:
    """One training as a user would start it."""

    def __init__(self, digits, few, folder, number):
        method, align = WAYS[number % len(WAYS)]
        folder.mkdir()
        made = light(digits, method, align, f"steps={8 + number % 5}", f"seed={number}")
        (folder / "recipe.json").write_text(made.to_json())
        self.command = ["train", few, "--recipe", folder / "recipe.json", "--quiet", *OPTIONS[number % len(OPTIONS)]]
        self.folder = folder
        # With a checkpoint after each step, or with none but the first and the last.
        self.checkpoint_seconds = 60.0 if number % 4 == 3 else -1.0

    def start(self, name, kill_at=None, tally=None):
        out = self.folder / name
        command = [*self.command, "--out", out, *(["--resume"] if Run(out).begun else [])]
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
    case = Case(digits, few, tmp_path / "case", 4)  # with trials, snapshots, validation images and a baseline
    whole, did = case.whole()
    assert {"supervised-only/result.json", "model.safetensors", "selection.json"} <= set(whole)
    steps, trials = did["before a step"], 2 * 5 * 12
    moments = [
        ("after a step", 5),
        ("torn selection.json", 4),
        ("after moving selection.json", did["after moving selection.json"]),
        ("after a step", trials + 5),
        ("torn checkpoint.pt", 7),
        ("torn log.jsonl", 3),
        ("before an evaluation", did["before an evaluation"] // 2),
        ("before moving result.json", 1),
        ("before removing checkpoint.pt", 1),
    ]
    assert steps == trials + 24
    for i, moment in enumerate(moments):
        reached, left = killed_and_resumed(case, str(i), [moment])
        assert reached == [moment[0]]
        assert left == whole, moment


@pytest.mark.soak
def test_a_hundred_trainings_killed(digits, few, tmp_path):
    """Four in five at moments chosen among all kinds of them, once or more, the others at random times."""
    choose, landed = random.Random(0), Counter()
    for number in range(20):
        case = Case(digits, few, tmp_path / f"{number}", number)
        whole, did = case.whole()
        for again in range(5):
            kills = []
            if again == 4:
                landed["at a random time"] += killed_at_random_times(case, f"{again}", choose)
            else:
                for what in choose.choices(KINDS, k=choose.randint(1, 3)):
                    name = choose.choice([name for name in sorted(did) if what in name])
                    kills.append((name, choose.randint(1, did[name])))
            reached, left = killed_and_resumed(case, f"{again}", kills)
            assert reached[:1] == [name for name, _ in kills[:1]]
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


# Sweeps and searches: processes that start others


class Many:
    """A command that starts trainings, four in all, and goes on where it was when it is started again."""

    def __init__(self, folder, *command):
        self.folder, self.command = folder, [*command, "--set", "steps=40", "--set", "net.width=0.25", "--out", folder]
        self.done = {}

    def start(self, jobs, kill_at=None):
        return victims.start([*self.command, "--jobs", jobs, "--json"], kill_at)

    def finish(self, jobs):
        process = self.start(jobs)
        process.join()
        assert process.exitcode == 0
        self.look()
        assert len(self.done) == 4
        return self

    def look(self):
        """No run that was finished has been run again."""
        for path in self.folder.rglob("result.json"):
            assert self.done.setdefault(path, path.stat().st_mtime_ns) == path.stat().st_mtime_ns

    def killed_while_training(self, jobs, everybody):
        """Kill it when a training that was not there before has begun; with all that it started, or alone."""
        before = set(self.folder.rglob("split.json"))
        process = self.start(jobs)
        while not set(self.folder.rglob("split.json")) - before and process.exitcode is None:
            process.join(0.02)
        kill = os.killpg if everybody else os.kill
        kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        self.look()

    def killed_early(self, choose):
        process = self.start(1)
        process.join(choose.uniform(0.05, 1.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL


@pytest.mark.soak
def test_a_sweep_killed(tmp_path):
    command = ["reproduce", "digits", "--only", "method=supervised,labels=20", "--seeds", 2]
    whole = Many(tmp_path / "whole", *command).finish(1)
    killed, choose = Many(tmp_path / "killed", *command), random.Random(0)
    for _ in range(3):
        killed.killed_early(choose)
    killed.killed_while_training(1, everybody=True)
    killed.killed_while_training(1, everybody=False)  # what it started goes on, and is waited for
    process = killed.start(1, ("before moving recipe.json", 1))
    process.join()
    assert process.exitcode == -signal.SIGKILL
    killed.finish(2)

    def left(many):
        texts = (".md", ".tex", ".html")  # they name the command, and so the folder
        return {name: content for name, content in everything(many.folder).items() if not name.endswith(texts)}

    assert left(killed) == left(whole)
    assert any(name.endswith("digits-labels-20-method-supervised.csv") for name in left(whole))


@pytest.mark.soak
def test_a_search_killed(tmp_path):
    command = ["tune", "digits", "--labels", 20, "--method", "supervised", "--align", "none"]
    whole = Many(tmp_path / "whole", *command).finish(1)
    killed, choose = Many(tmp_path / "killed", *command), random.Random(0)
    for _ in range(5):
        killed.killed_early(choose)
    killed.killed_while_training(1, everybody=True)
    killed.killed_while_training(1, everybody=False)
    killed.finish(2)

    def left(many):
        return {name: content for name, content in everything(many.folder).items() if not name.startswith("study.db")}

    assert left(killed) == left(whole)
    assert {"best.json", "trials.html"} <= set(left(whole))
