"""What the files of a run hold: checked when they are read, so that nothing behind needs to doubt them."""

import math
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, le=10**12)]
Percent = Annotated[float, Field(ge=0, le=100)]
MOST_VALUES = 4 * 100_000_000
"""Numbers in one image or vector; a file can claim any shape."""


class Held(BaseModel):
    """The fields that are relied on; a file may have others."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class OfInputs(Held):
    shape: list[Annotated[int, Field(ge=1)]] | None = None
    """`(c, h, w)` of images, or `(d,)` of vectors."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        shape = self.shape or [1]
        odd = len(shape) not in (1, 3) or (len(shape) == 3 and shape[0] not in (1, 3, 4))
        if odd or math.prod(shape) > MOST_VALUES:
            raise ValueError("it has an impossible shape")
        return self


class Environment(OfInputs):
    source: str = ""
    data: dict[str, str] | None = None
    more_labels: list[str] | None = None
    precision: str = ""
    device: str = ""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    no_test: bool = False
    snapshots: bool = False
    baseline: bool | None = None


class SplitLists(Held):
    labelled: list[Count]
    validation: list[Count]


class Scores(Held):
    error: Percent
    class_errors: dict[str, Percent | None]
    confusion: list[list[Count]]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        n = len(self.class_errors)
        if [len(row) for row in self.confusion] != [n] * n or not any(map(any, self.confusion)):
            raise ValueError("the confusions do not fit the classes")
        return self


class Result(Held):
    test_error: Percent | None
    val_error: Percent | None
    mmd2: float | None
    labelled_error: float | None = None
    bound: dict[str, float] | None = None
    labels: Count
    unlabelled: Count
    seconds: Annotated[float, Field(ge=0)]
    images_per_second: Annotated[float, Field(ge=0)]
    test_curve: dict[Annotated[str, Field(pattern="^[0-9]{1,18}$")], Percent] | None = None
    test: Scores | None = None
    validation: Scores | None = None


class ModelCard(OfInputs):
    classes: Annotated[list[str], Field(min_length=2)]
    shape: list[Annotated[int, Field(ge=1)]]
    net: dict[str, Any]
    temperature: Annotated[float, Field(gt=0)] = 1.0
    sha256: str | None = None

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two classes have the same name")
        return self


FILES: dict[str, type[Held]] = {
    "environment.json": Environment,
    "split.json": SplitLists,
    "result.json": Result,
    "model.json": ModelCard,
}


def is_line(value: Any) -> bool:
    """Whether a line of the log is one: an update, numbers that belong to it, and perhaps a warning."""
    if not isinstance(value, dict) or not is_number(value.get("step")) or not is_number(value.get("seconds", 0)):
        return False
    bound, warning = value.get("bound") or {}, value.get("warning", "")
    numbers = [inner for key, inner in value.items() if key not in ("bound", "warning") and inner is not None]
    return isinstance(bound, dict) and isinstance(warning, str) and all(map(is_number, (*numbers, *bound.values())))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
