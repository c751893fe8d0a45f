"""Sweeps, searches and predictions on real Ray clusters equal those of local processes, also when nodes are lost."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from afda import __version__
from afda.errors import UserError
from afda.experiments import ray_cluster
from afda.experiments.cells import select_cells
from afda.experiments.comparison import RunStore, build_rows
from afda.experiments.reproduce import make_jobs, plan_runs
from afda.experiments.sweep import build_command, run_sweep
from afda.machine.runtime import select_runtime
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.runs.directory import Run, open_run
from afda.runs.inputs import find_items
from afda.runs.model import load_model
from afda.runs.predict import iterate_batches, predict_items
from afda.runs.tables import open_table

pytest.importorskip("ray", reason="Ray is not installed: pip install 'afda[ray]'")

QUICK = ["steps=20", "net.width=0.25", "labelled_batch=10", "unlabelled_batch=10"]
SWEEP = ["reproduce", "table-5", "--on-digits", "--labels", "20", "--only", "method=supervised"]


def set_options(*texts):
    return [word for text in texts for word in ("--set", text)]


@contextlib.contextmanager
def start_nodes(root, *cpus):
    """Start a Ray cluster on this machine: its head, and other nodes, each with a folder for its temporary files."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], "include_dashboard": False})
    try:
        others = []
        for i, number in enumerate(cpus[1:]):
            folder = root / f"node{i}"
            folder.mkdir()
            others.append((started.add_node(num_cpus=number, env_vars={"TMPDIR": str(folder)}), folder))
        started.wait_for_nodes()
        yield started, others
    finally:
        started.shutdown()


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    with start_nodes(tmp_path_factory.mktemp("one"), 2) as (started, _):
        cluster = ray_cluster.Cluster(started.address)
        yield cluster
        cluster.disconnect()


@pytest.fixture(scope="module")
def swept(one_node, tmp_path_factory):
    """The same small sweep by local processes and on Ray."""
    chosen = select_cells("table-5", "method=supervised", labels=20, on_digits=True)
    local, remote = tmp_path_factory.mktemp("local"), tmp_path_factory.mktemp("remote")
    for folder, options in ((local, {}), (remote, {"machines": one_node})):
        jobs = make_jobs(plan_runs("table-5", chosen, "cpu", 1, QUICK), folder)
        run_sweep(jobs, **options)
        assert [(job.state, job.problem) for job in jobs] == [("done", "")] * 2
    return chosen, local, remote


def read_contents(folder):
    """Return all files of the runs in a folder, without times and speeds."""
    contents = {}
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file() and not p.name.startswith(".")):
        if "tables" in path.parts:
            continue
        content = path.read_bytes()
        if path.name == "result.json":
            content = {k: v for k, v in json.loads(content).items() if k not in ("seconds", "images_per_second")}
        if path.name == "log.jsonl":
            content = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in content.splitlines()]
        contents[path.relative_to(folder)] = content
    return contents


def test_a_sweep_is_the_same_on_ray(swept):
    chosen, local, remote = swept
    rows = [build_rows("table-5", chosen, RunStore(folder), "cpu", 1) for folder in (local, remote)]
    assert rows[0] == rows[1]
    assert read_contents(local) == read_contents(remote)
    assert any(path.name == "model.safetensors" for path in read_contents(remote))


def test_predictions_are_the_same_on_ray(one_node, swept, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_cluster, "SHARD", 7)  # several tasks with one batch each
    monkeypatch.setattr("afda.runs.predict.BATCH", 7)
    run = next(swept[2].rglob("model.json")).parent
    Path("images").mkdir()
    for i, image in enumerate(digits.test.x[:20]):
        Image.fromarray(image[0].numpy()).save(f"images/{i}.png")
    Path("images/damaged.png").write_text("no image")
    np.savez("more.npz", x=digits.test.x[:3].permute(0, 2, 3, 1).numpy())
    Path("list.txt").write_text("images/0.png\nabsent.png\n")
    runtime, (model, shape) = select_runtime("cpu", threads=1), load_model(run)
    runtime.place(model)

    def predict(where):
        skipped = []

        def skip(name, reason):
            skipped.append(name)

        items = find_items(["images", "more.npz", "list.txt"], skip)
        local = where == "local"
        rows = predict_items(model, shape, items, runtime, skip) if local else one_node.predict(run, items, skip)
        with open_table(Path(f"{where}.csv"), overwrite=False) as write:
            for batch in iterate_batches(rows):
                write([row.to_row() for row in batch])
        return Path(f"{where}.csv").read_bytes(), skipped

    local, remote = predict("local"), predict("remote")
    assert local == remote
    assert len(local[0].splitlines()) == 1 + 20 + 3 + 1
    assert len(local[1]) == 2


def test_a_machine_without_the_data_or_the_version_is_named(one_node, tmp_path):
    (update,) = ray_cluster.train_run({}, "run", str(tmp_path / "mine"), 1, (), __version__)
    assert update[:2] == ({}, 2)
    assert "must have the same path on every machine" in update.error
    (update,) = ray_cluster.train_run({}, "run", "digits", 1, (), "0.0.0")
    assert "install the same version on every machine" in update.error
    with pytest.raises(UserError, match="No machine of the cluster has the 64 CPUs and 0 GPUs"):
        ray_cluster.Cluster(None, 64)


def test_mistakes_are_explained(monkeypatch):
    with pytest.raises(UserError, match=r"No Ray cluster answers at 127.0.0.1:1;"):
        ray_cluster.connect_ray("127.0.0.1:1")
    with pytest.raises(UserError, match="on a machine of the cluster"):
        ray_cluster.connect_ray("ray://127.0.0.1:10001")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install -c constraints.txt 'afda\[ray\]'"):
        ray_cluster.connect_ray(None)


def test_options_are_checked(afda):
    assert afda(*SWEEP, "--on", "rays")[::2] == (
        2,
        "Error: There is no place for --on called 'rays'; did you mean 'ray'?\n",
    )
    assert afda(*SWEEP, "--address", "x:1")[::2] == (2, "Error: --address is that of a Ray cluster; add --on ray.\n")


def test_the_order_of_files_allows_an_interruption_at_any_point(tmp_path):
    for name in ("log.jsonl", "checkpoint.pt", "checkpoint.previous.pt", "model.json", "result.json", ".lock"):
        (tmp_path / name).write_text(name)
    sent = {}
    assert list(ray_cluster.collect_changed_files(tmp_path, sent)) == ["checkpoint.pt", "log.jsonl", "model.json"]
    with open(tmp_path / "log.jsonl", "a") as log:
        log.write("more")
    assert ray_cluster.collect_changed_files(tmp_path, sent) == {"log.jsonl": b"log.jsonlmore"}
    assert next(iter(ray_cluster.collect_changed_files(tmp_path, {}, has_ended=True))) == "result.json"


def start(*arguments, **options):
    # A background process may have inherited that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words = [sys.executable, "-m", "afda", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_until_finished(process, code=0):
    out, stderr = process.communicate()
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    return out


def wait_for(condition, process):
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    return found


def list_processes(folder):
    """Return the processes with this folder in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def test_a_training_ends_with_its_task(digits, tmp_path):
    """The task holds the other end of the training's standard input."""
    made = recipe("digits-demo", digits, "supervised", "none", 20).with_settings([*QUICK, "steps=1000000"])
    open_run(tmp_path / "run", made).unlock()
    path = tmp_path / "run"
    process = ray_cluster.start_attached(path, build_command(path, "digits", 1, ()), subprocess.PIPE)
    wait_for((tmp_path / "run" / "checkpoint.pt").exists, process)
    process.communicate()  # closes the pipe
    assert process.returncode == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.soak
def test_a_run_continues_on_another_node_after_a_loss(tmp_path, monkeypatch):
    """Of two nodes with one run each, one is lost.

    Its run continues from its checkpoint when the other node is free, with the same bits as without the loss. The
    process on the lost node ends with it.
    """
    monkeypatch.setenv("AFDA_CHECKPOINT_SECONDS", "0.2")
    changed = ["steps=3000", *QUICK[1:]]
    command = [*SWEEP, "--seeds", "1", "--json", *set_options(*changed)]
    runs = Path(",".join(sorted(changed)), "cpu", "digits-demo")
    with start_nodes(tmp_path, 0, 1, 1) as (started, ((lost, folder), (_, other))):
        there = tmp_path / "there"
        process = start(*command, "--on", "ray", "--address", started.address, "--out", there)
        wait_for(lambda: list(folder.glob("afda-*/checkpoint.previous.pt")), process)
        wait_for(lambda: all(Run(p).log.read() for p in (there / runs).iterdir()), process)
        on_it = next(Recipe.read(p) for p in folder.glob("afda-*/recipe.json"))
        run = next(Run(p) for p in (there / runs).iterdir() if Run(p).read_recipe() == on_it)
        wait_for(lambda: (run.read_checkpoint() or {"step": 0})["step"] > 0, process)
        saved = run.read_checkpoint()["step"]
        assert not run.finished
        started.remove_node(lost, allow_graceful=False)
        wait_for(lambda: not list_processes(folder), process)  # its training has ended, unfinished
        assert not run.finished
        wait_for(lambda: any(Recipe.read(p) == on_it for p in other.glob("afda-*/recipe.json")), process)
        again = next(p.parent for p in other.glob("afda-*/recipe.json") if Recipe.read(p) == on_it)
        assert Run(again).read_checkpoint()["step"] >= saved  # not from the beginning
        wait_until_finished(process)
        assert not list(other.glob("afda-*"))
    wait_until_finished(start(*command, "--out", tmp_path / "here"))
    assert read_contents(there) == read_contents(tmp_path / "here")
    assert not list(there.rglob("checkpoint*"))


@pytest.mark.soak
def test_ctrl_c_leaves_a_sweep_that_continues(tmp_path):
    command = [*SWEEP, "--seeds", "1", "--json", *set_options("steps=300", *QUICK[1:]), "--out", tmp_path / "there"]
    with start_nodes(tmp_path, 0, 1) as (started, ((_, folder),)):
        command += ["--on", "ray", "--address", started.address]
        first = start(*command)
        wait_for(lambda: [p for p in tmp_path.glob("there/**/log.jsonl") if Run(p.parent).log.read()], first)
        first.send_signal(signal.SIGINT)
        wait_until_finished(first, 130)
        assert not list(tmp_path.glob("there/**/result.json"))
        while list_processes(folder):  # no training continues in the background
            time.sleep(0.1)
        rows = json.loads(wait_until_finished(start(*command)))["rows"]
    assert all(row["plain"] and row["aligned"] for row in rows)


@pytest.mark.soak
def test_predictions_of_many_files_by_the_command(swept, digits, tmp_path):
    """More images than one task takes, on two nodes of which one is killed, give the file of one process."""
    run = next(swept[2].rglob("model.json")).parent
    for i in range(2500):
        place = tmp_path / "images" / str(i % 7)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.train.x[i % len(digits.train.x)][0].numpy()).save(place / f"{i}.png")
    (tmp_path / "images" / "0" / "damaged.png").write_text("no image")
    command = ["predict", run, "images", "--threads", "1", "--device", "cpu", "--json", "-o"]
    wait_until_finished(start(*command, "here.csv", cwd=tmp_path))
    with start_nodes(tmp_path, 0, 1, 1) as (started, ((lost, _), _)):
        process = start(*command, "there.csv", "--on", "ray", "--address", started.address, cwd=tmp_path)
        wait_for((tmp_path / ".there.csv.part").exists, process)
        started.remove_node(lost, allow_graceful=False)
        assert json.loads(wait_until_finished(process))["images"] == 2500
    for ending in ("csv", "csv-skipped.csv"):
        assert (tmp_path / f"here.{ending}").read_bytes() == (tmp_path / f"there.{ending}").read_bytes()


@pytest.mark.soak
def test_a_search_is_the_same_on_ray_and_continues_after_ctrl_c(tmp_path):
    search = ["tune", "digits", "--labels", "20", "--method", "supervised", "--align", "none", "--jobs", "1", "--json"]
    search += set_options("steps=200", "net.width=0.25")
    here = json.loads(wait_until_finished(start(*search, "--trials", "2", "--out", tmp_path / "here")))
    with start_nodes(tmp_path, 0, 1) as (started, _):
        search += ["--on", "ray", "--address", started.address, "--out", tmp_path / "there"]
        first = start(*search, "--trials", "2")
        (trial,) = wait_for(lambda: [p.parent for p in tmp_path.glob("there/trials/*/log.jsonl")], first)
        first.send_signal(signal.SIGINT)
        wait_until_finished(first, 130)
        assert not Run(trial).finished
        there = json.loads(wait_until_finished(start(*search, "--trials", "2")))
    assert here["trials"] == there["trials"] == 2
    assert Run(trial).finished  # its point was queued again
    assert read_contents(trial) == read_contents(tmp_path / "here" / "trials" / trial.name)
