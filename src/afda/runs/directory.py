"""The directory of a run: recipe, environment, split, log, checkpoints, model and result as plain files."""

import contextlib
import csv
import fcntl
import hashlib
import io
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import torch

from afda.errors import InUse, RunFailed, UserError
from afda.machine.files import explain_os_errors, write_atomically
from afda.machine.strict_json import parse_json
from afda.recipe import Recipe
from afda.runs.log import Log, dump_json
from afda.runs.schemas import Environment, ModelCard, Result, RunFile, SplitIndices
from afda.runs.selection import Selection

IN_USE = "is in use by another process"
CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
SNAPSHOT = "snapshot-"
"""Prefix of the files of models that are kept during training."""
SELECTION = "selection.json"
"""File with the trials of an automatic choice, which begins before there is a recipe."""
BASELINE = "supervised-only"
"""Subdirectory of a run with its supervised-only baseline."""
WORKING_FILES = (CHECKPOINT, PREVIOUS, f"{SNAPSHOT}*.safetensors")
"""Files that a run needs only until it is finished."""
OWN_FILES = (
    *("result.json", *WORKING_FILES, "environment.json", "split.json", "skipped.csv", "unlike.csv", "log.jsonl"),
    *("report.html", "model.json", "model.safetensors", SELECTION, BASELINE, "recipe.json"),
)
"""All files that a run writes, in the order in which they are removed: without a result a run is not finished, and with
a recipe the directory is still that of a run."""

File = TypeVar("File", bound=RunFile)


@dataclass
class Run:
    """The directory of one run. The process that writes to it holds its lock, which ends with the process."""

    path: Path
    _lock: IO[str] | None = field(default=None, repr=False)

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def read_recipe(self) -> Recipe:
        if not (self.path / "recipe.json").exists():
            raise UserError(f"{self.path} is not the directory of a run; give one that `afda train` has written.")
        return Recipe.read(self.path / "recipe.json")

    def read_result(self) -> Result:
        return self._read("result.json", Result)

    def read_environment(self) -> Environment:
        return self._read("environment.json", Environment)

    def read_split(self) -> SplitIndices:
        return self._read("split.json", SplitIndices)

    @property
    def begun(self) -> bool:
        """Whether there is a run here: its recipe, or the choice of one."""
        return (self.path / "recipe.json").exists() or (self.path / SELECTION).exists()

    def read_selection(self) -> Selection | None:
        """Return the automatic choice of the run's recipe; None if the user chose it."""
        return self._read(SELECTION, Selection) if (self.path / SELECTION).exists() else None

    def read_model_card(self) -> ModelCard:
        return self._read("model.json", ModelCard)

    def _read(self, name: str, schema: type[File]) -> File:
        """Return the content of a JSON file, or raise UserError if it is missing or breaks its schema."""
        if not self.path.is_dir():
            raise UserError(f"There is no directory {self.path}; give the directory of a finished run.")
        try:
            if not (path := self.path / name).is_file():
                raise ValueError("not a file")
            return schema.model_validate(parse_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            raise UserError(f"{self.path} has no readable {name}; is it the directory of a finished run?") from None

    @property
    def log(self) -> Log:
        return Log(self.path / "log.jsonl")

    def write_json(self, name: str, value: RunFile | dict[str, Any]) -> None:
        content = value.to_dict() if isinstance(value, RunFile) else value
        self.write(name, (dump_json(content, indent=2) + "\n").encode())

    def write(self, name: str, content: bytes) -> None:
        write_atomically(self.path / name, content)

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        """Write a checkpoint with its checksum in front, and keep the one before."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        if (self.path / CHECKPOINT).exists():
            with explain_os_errors(self.path):
                os.replace(self.path / CHECKPOINT, self.path / PREVIOUS)
        self.write(CHECKPOINT, hashlib.sha256(content).digest() + content)

    def read_checkpoint(self) -> dict[str, Any] | None:
        """Return the newest undamaged checkpoint, or None if none was ever written."""
        candidates = [p for p in (self.path / CHECKPOINT, self.path / PREVIOUS) if p.exists()]
        for path in candidates:
            # zipfile and torch raise almost anything on a file that only seems to be whole
            with contextlib.suppress(Exception):
                content = path.read_bytes()
                if hashlib.sha256(content[32:]).digest() == content[:32]:
                    state: dict[str, Any] = load_state(content[32:])
                    break
        else:
            if candidates:
                raise RunFailed(f"The checkpoints in {self.path} are damaged; start again with --overwrite.")
            return None
        if path != candidates[0]:  # the next write must not replace this one by a damaged one
            with explain_os_errors(self.path):
                candidates[0].unlink()
        return state

    def discard(self, *patterns: str) -> None:
        """Remove the files that match these patterns."""
        for pattern in patterns:
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)

    def lock(self) -> None:
        with explain_os_errors(self.path):
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held until `unlock` or the process's end
        with explain_os_errors(self.path):
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


def lock_directory(path: Path) -> Run:
    """Create the directory of a run if there is none, and lock it; refuse any other directory."""
    run = Run(path)
    with explain_os_errors(path):
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file; choose another --out.")
        path.mkdir(parents=True, exist_ok=True)
        if list_contents(path) and not run.begun:
            raise UserError(f"{path} is not the directory of a run, so it is left alone; choose another --out.")
    run.lock()
    return run


def open_run(path: Path, recipe: Recipe, *, resume: bool = False, overwrite: bool = False) -> Run:
    """Create and lock the directory of a run, or open an existing one to resume or overwrite it.

    Without `resume` and `overwrite` an existing run is refused; any other directory is refused always.
    """
    run = lock_directory(path)
    try:
        exists = (path / "recipe.json").exists()
        if exists and not (resume or overwrite):
            refuse_existing(path)
        if overwrite and not resume:
            with explain_os_errors(path):
                remove_own_files(path)
        if not exists or (overwrite and not resume):
            run.write("recipe.json", recipe.to_json().encode())
        elif changed := describe_differences(run.read_recipe(), recipe):
            raise UserError(f"{path} was started with another recipe ({changed}); resume it with its own settings.")
        if run.finished:  # a process that was killed may have left them
            run.discard(*WORKING_FILES)
    except (UserError, RunFailed):
        run.unlock()
        raise
    return run


def refuse_existing(path: Path) -> None:
    """Refuse a run that is neither to be continued nor replaced."""
    with explain_os_errors(path):
        if Run(path).begun:
            raise UserError(
                f"{path} already exists; add --resume to continue it, --overwrite to replace it, "
                "or choose another --out."
            )


def open_selection(path: Path, *, resume: bool = False, overwrite: bool = False) -> Run:
    """Create and lock the directory of a run whose recipe is still to be chosen, or open it to go on choosing.

    Without `resume` and `overwrite` an existing run is refused; any other directory is refused always.
    """
    run = lock_directory(path)
    try:
        if not (resume or overwrite):
            refuse_existing(path)
        if overwrite and not resume:
            with explain_os_errors(path):
                remove_own_files(path)
                (path / "recipe.json").unlink(missing_ok=True)
    except UserError:
        run.unlock()
        raise
    return run


def remove_own_files(path: Path) -> None:
    """Remove what a run writes, but its recipe. Other files stay, such as a table of labels that a user filled in."""
    for old in (old for name in OWN_FILES[:-1] for old in path.glob(name)):
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()


def load_state(content: bytes) -> Any:
    """Return what `torch.save` wrote, without executing code and with no more memory than the file is large."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        if sum(member.file_size for member in file.infolist()) > len(content):
            raise ValueError("it is compressed, which torch.save does not do")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def list_contents(path: Path) -> list[Path]:
    """Return what is in a directory, without the lock and half-written files, whose names begin with a dot."""
    return [inside for inside in path.iterdir() if not inside.name.startswith(".")]


def describe_differences(old: Recipe, new: Recipe) -> str:
    """Return the first three fields that differ, with both values; an empty string if none does."""
    return ", ".join(list(find_differences(old.model_dump(), new.model_dump()))[:3])


def find_differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield "path: old value there, new value now" for each difference of two recipes as plain values."""
    a, b = index_by_name(old), index_by_name(new)
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b) and a.get("name") == b.get("name"):
        for key in a:
            yield from find_differences(a[key], b[key], f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path}: {format_value(a)} there, {format_value(b)} now"


def index_by_name(value: Any) -> Any:
    """Return a list of methods as a mapping from their names, and any other value as it is."""
    if isinstance(value, list | tuple) and all(isinstance(element, dict) for element in value):
        return {element["name"]: element for element in value}
    return value


def format_value(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name") or "+".join(value))
    return "none" if value is None else repr(value)


def format_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()
