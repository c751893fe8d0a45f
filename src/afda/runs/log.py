"""The log of a run: one line per logged step, written so that a killed run loses none of them."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from afda.errors import RunFailed
from afda.machine.files import translate_os_error, write_atomically
from afda.machine.strict_json import parse_json


class LogLine(BaseModel):
    """A line of `log.jsonl`: a step, when it was reached, and the numbers that belong to it.

    In the file `values` lie beside the other fields. `warning` says what is going wrong from this step on.
    """

    model_config = ConfigDict(strict=True)

    step: int
    seconds: float = 0.0
    values: dict[str, float | None] = {}
    """Terms of the loss, rates and metrics by name; None where a metric is not defined."""
    bound: dict[str, float] | None = None
    warning: str | None = None

    @classmethod
    def from_dict(cls, line: Any) -> Self:
        """Return the line of a JSON object, or raise ValueError."""
        if not isinstance(line, dict):
            raise ValueError("a line of the log is an object")
        fields = cls.model_fields.keys() - {"values"}
        own = {key: value for key, value in line.items() if key in fields}
        return cls.model_validate(own | {"values": {k: v for k, v in line.items() if k not in fields}})

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the line, without the fields that were not set."""
        fields = self.model_dump(exclude_unset=True, exclude={"values"})
        return {"step": fields.pop("step"), **self.values, **fields}


@dataclass(frozen=True)
class Log:
    """The file `log.jsonl` of a run."""

    path: Path

    def read(self) -> list[LogLine]:
        """Return the lines of the log, without those that are damaged or cut off."""
        with contextlib.suppress(OSError):
            return list(parse_log(self.path.read_text(encoding="utf-8", errors="replace")))
        return []

    def append(self, line: LogLine) -> None:
        """Write a line; it is on disk before the next checkpoint, which counts on it."""
        text = dump_json(line.to_dict()) + "\n"
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise translate_os_error(error, self.path.parent) from error

    def truncate(self, step: int) -> None:
        """Remove the lines after this step: a resumed run writes them again."""
        kept = [dump_json(line.to_dict()) + "\n" for line in self.read() if line.step <= step]
        write_atomically(self.path, "".join(kept).encode())


def parse_log(text: str) -> Iterator[LogLine]:
    """Yield the lines of a log that are whole."""
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            yield LogLine.from_dict(parse_json(line))


def dump_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON; numbers that are not finite raise RunFailed."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        raise RunFailed(
            "The net's outputs are no longer finite numbers; the last checkpoint is kept. Try a lower learning rate."
        ) from None
