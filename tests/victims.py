"""`afda` in processes that are killed, for real, at moments of one's choice.

The processes are forked from one that has imported everything, so that each costs little.
"""

import builtins
import json
import multiprocessing
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import torch

import afda.experiments.tune
import afda.report.write
import afda.training.run
from afda import cli
from afda.machine import files as disk
from afda.recipes import recipe
from afda.runs import directory as runs
from afda.runs import log, results
from afda.training import budget
from afda.training import loop as algorithm

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("afda.cli", "afda.report.write", "afda.training.run", "afda.experiments.tune"),
        *("optuna", "pytest", "scipy.stats", "torch._dynamo"),
    ]
)


LIGHT = ["labels=20", "labelled_batch=4", "unlabelled_batch=8", "net=mlp", "net.hidden=16", "net.features=8"]


def light(digits, method, align, *settings):
    """A recipe for `few.npz` whose updates take milliseconds."""
    small = ["align.hidden=8"] if align in ("adversarial", "reversal") else []
    return recipe("digits-demo", digits, method, align).with_settings([*LIGHT, *small, "data=few", *settings])


class Moments:
    """Counts what a process does, by a name such as "torn log.jsonl", and kills it the nth time that it does that."""

    def __init__(self, kill_at: tuple[str, int] | None) -> None:
        self.kill_at, self.counts = kill_at, Counter()

    def now(self, name: str) -> bool:
        self.counts[name] += 1
        return (name, self.counts[name]) == self.kill_at

    def around(self, place: object, function: str, name: str, which: int | None = None) -> None:
        """Watch a function; `which` of its arguments names a file."""
        original = getattr(place, function)

        def watched(*arguments, **more):
            of = "" if which is None else " " + kind(arguments[which])
            if self.now(f"before {name}{of}"):
                die()
            result = original(*arguments, **more)
            if self.now(f"after {name}{of}"):
                die()
            return result

        setattr(place, function, watched)

    def opened(self, path, mode="r", **more):
        """A file whose writes may break off in the middle."""
        file = builtins.open(path, mode, **more)  # noqa: SIM115
        if mode in ("wb", "a"):
            write = file.write

            def torn(content):
                if self.now(f"torn {kind(path)}"):
                    write(content[: len(content) // 2])
                    file.flush()
                    die()
                return write(content)

            file = Torn(file, torn)
        return file


class Torn:
    def __init__(self, file, write):
        self.file, self.write = file, write

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def kind(path) -> str:
    """A file by its name, all snapshots alike; a place elsewhere than in a run is all the same."""
    name = Path(path).name.removeprefix(".").removesuffix(".part")
    return "snapshot" if name.startswith(runs.SNAPSHOT) else name if name in runs.OWN_FILES else "else"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def victim(arguments: list[str], kill_at: tuple[str, int] | None, checkpoint_seconds: float, tally: str | None) -> None:
    torch.set_num_threads(1)
    os.setsid()  # so that it can be killed with all that it starts
    moments = Moments(kill_at)
    os.environ["AFDA_CHECKPOINT_SECONDS"] = str(checkpoint_seconds)
    afda.experiments.tune.SUPERVISED_BATCH, afda.experiments.tune.RATES = (8, 16), (4e-3, 5e-3)  # a grid of four points
    budget.measure_step_seconds = lambda training: 1e-3
    runs.open = log.open = disk.open = moments.opened
    moments.around(os, "replace", "moving", 1)
    moments.around(os, "unlink", "removing", 0)
    moments.around(os, "fsync", "syncing")
    moments.around(algorithm, "set_rates", "a step")
    moments.around(results, "compute_outputs", "an evaluation")
    moments.around(afda.training.run, "save_model", "the model")
    sys.argv = ["afda", *arguments]
    try:
        cli.main()
    finally:
        if tally:
            Path(tally).write_text(json.dumps(moments.counts))


def start(arguments, kill_at=None, checkpoint_seconds=-1.0, tally=None):
    """A process that runs `afda` with these arguments; its first words on standard error go to the test's."""
    process = PROCESSES.Process(target=victim, args=([*map(str, arguments)], kill_at, checkpoint_seconds, tally))
    process.start()
    return process


def everything(folder):
    """All that is in a folder of runs, but for the time it took and where it was."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"):
        name = str(path.relative_to(folder))
        if path.name == "log.jsonl":
            found[name] = [line.model_dump(exclude={"seconds"}) for line in runs.Run(path.parent).log.read()]
            assert len(found[name]) == path.read_text().count("\n")
        elif path.name == "result.json":
            result = json.loads(path.read_text())
            found[name] = {k: v for k, v in result.items() if k not in ("seconds", "images_per_second")}
        elif path.name == "selection.json":
            leave_out = {"seconds": True, "candidates": {"__all__": {"trials": {"__all__": {"seconds"}}}}}
            found[name] = runs.Run(path.parent).read_selection().model_dump(exclude=leave_out)
        else:
            found[name] = path.read_bytes()
    return found
