"""A run is a directory of plain files: what was to be done, on what, what happened, and the model."""

import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from afda.disk import refusals_explained, write_whole
from afda.errors import InUse, RunFailed, UserError
from afda.recipe import Recipe
from afda.run_files import FILES, Held, is_line
from afda.strict_json import parsed

IN_USE = "is in use by another process"
CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
SNAPSHOT = "snapshot-"
"""How the names of models kept in mid-training begin."""
BASELINE = "supervised-only"
"""The run on the labels alone, inside the directory of the run that it accompanies."""
WORKING_FILES = (CHECKPOINT, PREVIOUS, f"{SNAPSHOT}*.safetensors")
"""What a run needs until it is finished."""
OWN_FILES = (
    *("result.json", *WORKING_FILES, "environment.json", "split.json", "skipped.csv", "log.jsonl", "report.html"),
    *("model.json", "model.safetensors", BASELINE, "recipe.json"),
)
"""All that a run writes, in the order in which it may vanish: without a result it is not finished, with a recipe it is
still a run."""


@dataclass
class Run:
    """The directory of one run. Whoever writes to it holds its lock, which a dead process does not."""

    path: Path
    _lock: IO[str] | None = field(default=None, repr=False)

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def recipe(self) -> Recipe:
        return Recipe.read(self.path / "recipe.json")

    def result(self) -> dict[str, Any]:
        return self.read_json("result.json")

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            if not (path := self.path / name).is_file():
                raise ValueError("not a file")
            value = parsed(path.read_text(encoding="utf-8"))
            FILES.get(name, Held).model_validate(value)
            return value
        except (OSError, ValueError):
            raise UserError(f"{self.path} has no readable {name}; is it the directory of a finished run?") from None

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log; a last line that was cut off is left out."""
        with contextlib.suppress(OSError):
            return list(whole_lines((self.path / "log.jsonl").read_text(encoding="utf-8", errors="replace")))
        return []

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, (as_json(value, indent=2) + "\n").encode())

    def write(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content)

    def append_log(self, line: dict[str, Any]) -> None:
        with refusals_explained(self.path), open(self.path / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(as_json(line) + "\n")
            file.flush()
            os.fsync(file.fileno())  # before the next checkpoint, which counts on it

    def cut_log(self, step: int) -> None:
        """Forget log lines after this step: a resumed run writes them again."""
        kept = [json.dumps(line) + "\n" for line in self.log() if line["step"] <= step]
        self.write("log.jsonl", "".join(kept).encode())

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        """Save all that is needed to go on, behind its own checksum; the last but one is kept too."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        if (self.path / CHECKPOINT).exists():
            with refusals_explained(self.path):
                os.replace(self.path / CHECKPOINT, self.path / PREVIOUS)
        self.write(CHECKPOINT, hashlib.sha256(content).digest() + content)

    def read_checkpoint(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, or None if there never was one."""
        found = [p for p in (self.path / CHECKPOINT, self.path / PREVIOUS) if p.exists()]
        for path in found:
            # zipfile and torch raise almost anything on what only looks whole
            with contextlib.suppress(Exception):
                content = path.read_bytes()
                if hashlib.sha256(content[32:]).digest() == content[:32]:
                    state = unpacked(content[32:])
                    break
        else:
            if found:
                raise RunFailed(f"The checkpoints in {self.path} are damaged; start again with --overwrite.")
            return None
        if path != found[0]:  # a damaged one must not push this out when the next is written
            with refusals_explained(self.path):
                found[0].unlink()
        return state

    def discard(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)

    def lock(self) -> None:
        with refusals_explained(self.path):
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held until `unlock` or the process's end
        with refusals_explained(self.path):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.unlock()
                raise InUse(f"{self.path} {IN_USE}; wait for it or choose another --out.") from None

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __del__(self) -> None:
        self.unlock()


def open_run(path: Path, recipe: Recipe, *, resume: bool = False, overwrite: bool = False) -> Run:
    """Make the directory of a run, or open one to go on with. Nothing that is there is lost unless asked for."""
    run = Run(path)
    with refusals_explained(path):
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file; choose another --out.")
        path.mkdir(parents=True, exist_ok=True)
        if contents(path) and not (path / "recipe.json").exists():
            raise UserError(f"{path} is not the directory of a run, so it is left alone; choose another --out.")
    run.lock()
    try:
        with refusals_explained(path):
            there = contents(path)
            if there and not (resume or overwrite):
                raise UserError(
                    f"{path} already exists; add --resume to continue it, --overwrite to replace it, "
                    "or choose another --out."
                )
            if overwrite and not resume:
                # Only what a run writes: a table of labels that somebody filled in may lie here too.
                for old in (old for name in OWN_FILES[:-1] for old in path.glob(name)):
                    shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        if not there or (overwrite and not resume):
            run.write("recipe.json", recipe.to_json().encode())
        elif changed := differences(run.recipe(), recipe):
            raise UserError(f"{path} was started with another recipe ({changed}); resume it with its own settings.")
        if run.finished:  # and killed before it had tidied up
            run.discard(*WORKING_FILES)
    except (UserError, RunFailed):
        run.unlock()
        raise
    return run


def unpacked(content: bytes) -> Any:
    """What `torch.save` wrote. Nothing in it is executed, and it takes no more memory than the file is large."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        if sum(member.file_size for member in file.infolist()) > len(content):
            raise ValueError("it is compressed, which torch.save does not do")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def contents(path: Path) -> list[Path]:
    """What is in a directory, but for the lock and what a killed process left half-written: they begin with a dot."""
    return [inside for inside in path.iterdir() if not inside.name.startswith(".")]


def differences(old: Recipe, new: Recipe) -> str:
    """Which fields differ, the first three, in words."""
    return ", ".join(list(changes(old.model_dump(), new.model_dump()))[:3])


def changes(old: Any, new: Any, path: str = "") -> Iterator[str]:
    a, b = by_name(old), by_name(new)
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b) and a.get("name") == b.get("name"):
        for key in a:
            yield from changes(a[key], b[key], f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path}: {in_words(a)} there, {in_words(b)} now"


def by_name(value: Any) -> Any:
    """A list of methods as a mapping from their names."""
    if isinstance(value, list | tuple) and all(isinstance(element, dict) for element in value):
        return {element["name"]: element for element in value}
    return value


def in_words(value: Any) -> str:
    if isinstance(value, dict):
        return value.get("name") or "+".join(value)
    return "none" if value is None else repr(value)


def as_json(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        raise RunFailed(
            "The net's outputs are no longer finite numbers; the last checkpoint is kept. Try a lower learning rate."
        ) from None


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


def whole_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            if is_line(value := parsed(line)):
                yield value
