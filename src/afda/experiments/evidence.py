"""Records of finished runs: one JSON object per line with recipe, result, environment and split fingerprint.

`results/runs.jsonl` holds the runs behind the committed tables. `collect_runs` reads the run directories below a
folder, `write_evidence` adds their records to such a file, and `load_records` reads either of the two.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from afda.errors import UserError
from afda.machine.files import check_writable, write_atomically
from afda.machine.strict_json import parse_json
from afda.recipe import Recipe
from afda.runs.directory import Run
from afda.runs.schemas import Environment, Result, SplitIndices

EVIDENCE = "runs.jsonl"
"""The file of records in a folder of results."""


@dataclass(frozen=True)
class RunRecord:
    """A finished run without its log and weights."""

    path: str
    """The run's directory relative to the folder of results, such as cpu/digits-demo/vat-20-seed0. It identifies the
    run: a record replaces an earlier one of the same path."""
    recipe: Recipe
    result: Result
    environment: Environment
    split: str = ""
    """SHA-256 over the indices of the labelled and validation images."""
    folder: Path | None = field(default=None, compare=False)
    """The run's directory if it is present, with its log and perhaps its weights."""

    @property
    def precision(self) -> str | None:
        return self.environment.precision or None

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        fields = {
            "path": self.path,
            "recipe": self.recipe.model_dump(),
            "split": self.split,
            "environment": remove_paths(self.environment.to_dict()),
            "result": self.result.to_dict(),
        }
        return json.dumps(fields, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> "RunRecord":
        """Read one line, or raise ValueError."""
        fields = parse_json(line)
        if not isinstance(fields, dict) or not isinstance(fields.get("path"), str):
            raise ValueError("not a record with a path")
        try:
            return cls(
                fields["path"],
                Recipe.of(fields["recipe"]),
                Result.model_validate(fields["result"]),
                Environment.model_validate(fields["environment"]),
                str(fields["split"]),
            )
        except (KeyError, UserError, ValidationError) as error:
            raise ValueError(f"not the record of a run: {str(error).splitlines()[0]}") from None


def fingerprint_split(split: SplitIndices) -> str:
    """Return a SHA-256 that two runs share exactly if they have the same labelled and validation images."""
    lists = {"labelled": sorted(split.labelled), "validation": sorted(split.validation)}
    return "sha256:" + hashlib.sha256(json.dumps(lists, separators=(",", ":")).encode()).hexdigest()


def remove_paths(environment: dict[str, Any]) -> dict[str, Any]:
    """Return the environment with files of this machine reduced to their names."""
    paths = [environment.get("source"), *(environment.get("more_labels") or [])]
    absolute = sorted((p for p in paths if isinstance(p, str) and Path(p).is_absolute()), key=len, reverse=True)

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {clean(key): clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [clean(inner) for inner in value]
        if isinstance(value, str):
            for path in absolute:
                value = value.replace(path, Path(path).name)
        return value

    cleaned: dict[str, Any] = clean(environment)
    return cleaned


def read_record(folder: Path, path: str) -> RunRecord:
    """Read the finished run in `folder/path`; a missing environment or split is left empty."""
    run = Run(folder / path)
    environment, split = Environment(), ""
    with contextlib.suppress(UserError):
        environment = run.read_environment()
    with contextlib.suppress(UserError):
        split = fingerprint_split(run.read_split())
    return RunRecord(path, run.read_recipe(), run.read_result(), environment, split, run.path)


def collect_runs(folder: Path) -> list[RunRecord]:
    """Return the finished runs in and below a folder, by path."""
    found = sorted(path.parent for path in folder.rglob("result.json") if (path.parent / "recipe.json").exists())
    return [read_record(folder, path.relative_to(folder).as_posix()) for path in found]


def read_evidence(file: Path) -> list[RunRecord]:
    """Read a file of records, or raise a UserError that names the line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{file} cannot be read as a file of runs; give a runs.jsonl or a folder of runs.") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(RunRecord.from_json(line))
        except ValueError as error:
            raise UserError(f"{file}, line {number}, is damaged ({error}); restore the file.") from None
    return records


def load_records(source: Path) -> list[RunRecord]:
    """Read the records of a file, or of a folder: those in its runs.jsonl and those of the run directories below it.

    A run directory replaces a record of the same path.
    """
    if source.is_file():
        return read_evidence(source)
    if not source.is_dir():
        raise UserError(f"There is no {source} to reuse; give a folder of runs or a runs.jsonl.")
    known = read_evidence(source / EVIDENCE) if (source / EVIDENCE).exists() else []
    records = merge_records(known, collect_runs(source))
    if not records:
        raise UserError(f"{source} has neither a {EVIDENCE} nor a finished run; give a folder of runs.")
    return records


def merge_records(known: Iterable[RunRecord], new: Iterable[RunRecord]) -> list[RunRecord]:
    """Return all records by path, the new ones in place of known ones of the same path."""
    by_path = {record.path: record for record in [*known, *new]}
    return [by_path[path] for path in sorted(by_path)]


def write_evidence(file: Path, records: Iterable[RunRecord]) -> list[RunRecord]:
    """Add records to a file, replacing those of the same path, and return all that it then holds."""
    merged = merge_records(read_evidence(file) if file.exists() else [], records)
    check_writable(file.parent)
    write_atomically(file, "".join(record.to_json() + "\n" for record in merged).encode())
    return merged


def records_below(records: Iterable[RunRecord], prefix: str) -> Mapping[str, RunRecord]:
    """Return the records whose path begins with a prefix, by the rest of their path."""
    return {record.path.removeprefix(prefix): record for record in records if record.path.startswith(prefix)}
