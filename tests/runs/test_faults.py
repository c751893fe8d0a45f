"""Faults of disks, files and numbers: each is reported in one sentence, and the last good state stays usable."""

import builtins
import errno
import os
import shutil
import subprocess

import numpy as np
import pytest

from afda import losses
from afda.machine.runtime import select_runtime
from afda.runs.directory import CHECKPOINT, PREVIOUS, Run, open_run
from afda.runs.model import load_model
from afda.training import loop as algorithm
from afda.training import state as training
from victims import Torn, everything, light


@pytest.fixture
def start(afda, digits, few, tmp_path, monkeypatch):
    """Return a function that runs `afda train` with a checkpoint after each step, and resumes a run that exists."""
    monkeypatch.setenv("AFDA_CHECKPOINT_SECONDS", "-1")
    (tmp_path / "recipe.json").write_text(light(digits, "vat+entropy", "adversarial", "steps=8").to_json())
    how = ["--recipe", tmp_path / "recipe.json", "--quiet", "--threads", "1", "--no-baseline", "--snapshots"]

    def run(out, *more, data=few):
        again = ["--resume"] if (out / "recipe.json").exists() else []
        return afda("train", data, *how, "--out", out, *again, *more)

    return run


def assert_one_sentence(outcome, code, words):
    """Assert that the command failed with this exit code and one line with these words."""
    assert outcome[:2] == (code, "")
    assert outcome[2].startswith("Error: ")
    assert outcome[2].count("\n") == 1
    assert words in outcome[2]


def start_and_stop(start, monkeypatch, out, step):
    """Return a run that was cut off in this step."""

    def fail(*arguments, rates=algorithm.set_rates, count=iter(range(1, 100))):
        if next(count) == step:
            raise MemoryError
        rates(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(algorithm, "set_rates", fail)
        assert_one_sentence(start(out), 1, "Out of memory")
    return Run(out)


# A full disk


class FullDisk:
    """A disk on which the nth write fails, having written half of it, and all that follow, until there is space."""

    def __init__(self, patch, nth):
        self.left = nth
        for place in ("afda.runs.directory.open", "afda.machine.files.open"):
            patch.setattr(place, self.opened, raising=False)
        patch.setattr(os, "fsync", lambda descriptor, sync=os.fsync: (self.spend(), sync(descriptor)))

    def spend(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def opened(self, path, mode="r", **more):
        file = builtins.open(path, mode, **more)  # noqa: SIM115

        def write(content):
            try:
                self.spend()
            except OSError:
                file.write(content[: len(content) // 2])
                file.flush()
                raise
            return file.write(content)

        return Torn(file, write)


def run_on_full_disk(start, monkeypatch, folder, nth):
    """Return the files of a run whose disk was full at the nth write, after resuming it; None if it wrote less."""
    out = folder / str(nth)
    with monkeypatch.context() as patch:
        disk = FullDisk(patch, nth)
        outcome = start(out)
    if outcome[0]:
        assert_one_sentence(outcome, 1, "is full; free some space")
        assert start(out)[0] == 0
    return everything(out) if disk.left < 0 else None  # it was done by then


def test_a_full_disk(start, tmp_path, monkeypatch):
    assert start(tmp_path / "whole")[0] == 0
    whole = everything(tmp_path / "whole")
    for nth in (0, 5, 12, 27, 40, 55):
        assert run_on_full_disk(start, monkeypatch, tmp_path, nth) == whole


@pytest.mark.soak
def test_a_full_disk_at_every_write(start, tmp_path, monkeypatch):
    assert start(tmp_path / "whole")[0] == 0
    whole, nth = everything(tmp_path / "whole"), 0
    while (left := run_on_full_disk(start, monkeypatch, tmp_path, nth)) is not None:
        assert left == whole, nth
        nth += 1
    print(f"{nth} writes failed")
    assert nth > 60


@pytest.fixture
def small_disk(tmp_path):
    """A file system in memory that holds little, and a way to mount it anew with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=False, capture_output=True)

    if os.geteuid() != 0 or shutil.which("mount") is None or mount("size=48k").returncode:
        pytest.skip("needs the right to mount a file system")
    yield place, lambda options: mount(f"remount,{options}")
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_that_is_small_and_then_read_only(start, tmp_path, small_disk):
    assert start(tmp_path / "whole")[0] == 0
    disk, mount = small_disk
    assert_one_sentence(start(disk / "run"), 1, "is full; free some space, then give the command again")
    run = Run(disk / "run")
    before = run.read_checkpoint()["step"]
    assert mount("ro").returncode == 0
    assert_one_sentence(start(disk / "run"), 2, "cannot be written (Read-only file system); choose another --out")
    assert_one_sentence(start(disk / "another"), 2, "cannot be written (Read-only file system); choose another --out")
    assert run.read_checkpoint()["step"] == before
    assert mount("rw,size=10m").returncode == 0
    assert start(disk / "run")[0] == 0
    assert everything(disk / "run") == everything(tmp_path / "whole")


def test_a_search_without_its_file(afda, tmp_path, small_disk):
    disk, mount = small_disk
    search = ["tune", "digits", "--labels", 20, "--method", "supervised", "--align", "none", "--trials", 1, "--jobs", 1]
    assert mount("ro").returncode == 0
    assert_one_sentence(afda(*search, "--out", disk / "search"), 2, "cannot be written (Read-only file system)")
    assert mount("rw,size=48k").returncode == 0
    assert_one_sentence(afda(*search, "--out", disk / "search"), 1, "study.db cannot be used (")
    (tmp_path / "study.db").write_bytes(b"nonsense" * 1000)
    assert_one_sentence(afda(*search, "--out", tmp_path), 1, "study.db cannot be used (")


# Damaged files


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["flipped", "truncated"])
def test_damaged_checkpoints(start, tmp_path, monkeypatch, how):
    assert start(tmp_path / "whole")[0] == 0
    run = start_and_stop(start, monkeypatch, tmp_path / "run", 6)
    shutil.copytree(run.path, tmp_path / "both")
    damage(run.path / CHECKPOINT, how)
    assert start(run.path)[0] == 0  # it goes on from the one before
    assert everything(run.path) == everything(tmp_path / "whole")

    for name in (CHECKPOINT, PREVIOUS):
        damage(tmp_path / "both" / name, how)
    assert_one_sentence(start(tmp_path / "both"), 1, "are damaged; start again with --overwrite")


@pytest.mark.parametrize("how", ["flipped", "truncated"])
def test_a_damaged_model(afda, start, few, tmp_path, how):
    run = tmp_path / "run"
    assert start(run)[0] == 0
    load_model(run)
    kept = (run / "model.safetensors").read_bytes()
    damage(run / "model.safetensors", how)
    assert_one_sentence(afda("evaluate", run), 2, "it is damaged")
    assert_one_sentence(afda("predict", run, tmp_path / "few.npz", "-o", tmp_path / "p.csv"), 2, "it is damaged")
    (run / "model.safetensors").write_bytes(kept)
    load_model(run)


def test_a_log_that_was_damaged(start, tmp_path, monkeypatch):
    run = start_and_stop(start, monkeypatch, tmp_path / "run", 6)
    with open(run.path / "log.jsonl", "ab") as file:
        file.write(b'\xff\x00{"step": 3\n{"steq": 4}\n7\n{"step": ')
    assert [line.step for line in run.log.read()] == [1, 2, 3, 4, 5]
    assert start(run.path)[0] == 0
    assert start(tmp_path / "whole")[0] == 0
    assert everything(run.path) == everything(tmp_path / "whole")


# Concurrent use


def test_a_run_in_use(start, digits, tmp_path):
    held = open_run(tmp_path / "run", light(digits, "vat+entropy", "adversarial", "steps=8"))
    assert_one_sentence(start(tmp_path / "run"), 2, "is in use by another process; wait for it or choose another --out")
    held.unlock()
    assert start(tmp_path / "run")[0] == 0


def test_data_replaced_between_start_and_resume(start, few, tmp_path, monkeypatch):
    data, out = tmp_path / "few.npz", tmp_path / "run"
    shutil.copy(few, data)
    with monkeypatch.context() as patch:
        FullDisk(patch, 30)
        assert start(out, data=data)[0] == 1
    step = Run(out).read_checkpoint()["step"]
    arrays = dict(np.load(few))
    arrays["x"][0] += 1
    np.savez(data, **arrays)
    assert_one_sentence(start(out, data=data), 2, "have changed since it was started; start again with another --out")
    assert Run(out).read_checkpoint()["step"] == step > 0
    shutil.copy(few, data)
    assert start(out, data=data)[0] == 0
    np.savez(data, **arrays)  # a baseline on other data than the run's would compare nothing
    changed = "have changed since it was started; start again with another --out"
    assert_one_sentence(start(out, "--baseline", data=data), 2, changed)


def test_overwriting_cut_off(start, tmp_path, monkeypatch):
    """A directory that was being replaced can be replaced again, whatever lies beside the run's files."""
    out = tmp_path / "run"
    assert start(out)[0] == 0
    (out / "report-label-next.csv").write_text("path,label\na,1\n")

    def cut_off(*_):
        raise KeyboardInterrupt

    recipe = Run(out).read_recipe()
    for nth in range(8):

        def remove(path, *arguments, unlink=os.unlink, left=iter(range(nth)), **more):
            next(left, None) is None and cut_off()
            unlink(path, *arguments, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", remove)
            patch.setattr(os, "replace", cut_off)
            with pytest.raises(KeyboardInterrupt):
                open_run(out, recipe, overwrite=True)
        assert not Run(out).finished or nth == 0
    open_run(out, recipe, overwrite=True).unlock()
    assert sorted(p.name for p in out.iterdir()) == [".lock", "recipe.json", "report-label-next.csv"]


# Numbers that are not finite


def test_a_loss_that_is_not_a_number(start, tmp_path, monkeypatch):
    assert start(tmp_path / "whole")[0] == 0

    def entropy(logits, f=losses.entropy, count=iter(range(100))):
        return f(logits) * (float("nan") if next(count) == 5 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(losses, "entropy", entropy)
        outcome = start(tmp_path / "run")
    kept = "between steps 5 and 6; the checkpoint of step 5 is kept. Try a lower learning rate"
    assert_one_sentence(outcome, 1, kept)
    assert start(tmp_path / "run")[0] == 0
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")


@pytest.mark.parametrize("part", ["discriminator", "its optimiser"])
def test_a_discriminator_that_is_no_number_is_not_saved(digits, part):
    """With the literal order d is updated last, so that the losses do not show it yet."""
    begun = training.begin(light(digits, "supervised", "adversarial"), digits, select_runtime("cpu"))
    next(algorithm.run_updates(begun))
    assert begun.is_finite()
    alignment = begun.owned["adversarial"]
    weight = next(alignment.parameters())
    broken = weight if part == "discriminator" else alignment.optimizer.state[weight]["exp_avg_sq"]
    broken.data[0] = float("inf")
    assert not begun.is_finite()
