"""Frozen, validated values, and shelves of them found by folder.

A shelf is a folder of the package. Each of its files defines one `Choice`; the file's name in kebab-case is the
name users type. Adding a file adds the choice everywhere: command line, recipes, lists and tables.
"""

import importlib
import pkgutil
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer

from afda.errors import UserError, printable, unknown

KINDS = {"methods": "method", "nets": "net", "align": "alignment", "data.sets": "data set"}


class Value(BaseModel):
    """A frozen value whose fields are checked; two equal values describe the same thing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Choice(Value):
    """A value picked by name from a shelf, such as a method or a net, with its hyper-parameters as fields."""

    shelf: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        return cls.__module__.rpartition(".")[2].replace("_", "-")

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's documentation."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @model_serializer(mode="wrap")
    def _with_name(self, fields: Any) -> dict[str, Any]:
        return {"name": self.name(), **fields(self)}


def names(shelf: str) -> list[str]:
    """The names on a shelf, without importing what is behind them."""
    package = importlib.import_module(f"afda.{shelf}")
    return sorted(
        m.name.replace("_", "-") for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")
    )


@cache
def choice(shelf: str, name: str) -> type[Choice]:
    """The class behind a name."""
    if name not in names(shelf):
        raise unknown(KINDS[shelf], name, [*names(shelf), "none"] if shelf == "align" else names(shelf))
    module = importlib.import_module(f"afda.{shelf}.{name.replace('-', '_')}")
    (found,) = (
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Choice) and c.__module__ == module.__name__ and c.shelf == shelf
    )
    return found


def pick(shelf: str, value: Any) -> Any:
    """Turn a name, or a mapping with a name and fields, into the choice it stands for."""
    if isinstance(value, str):
        return choice(shelf, value)()
    if isinstance(value, dict):
        fields = dict(value)
        name = fields.pop("name", None)
        if not isinstance(name, str):
            raise UserError(f"A {KINDS[shelf]} needs a name; choose from: {', '.join(names(shelf))}.")
        try:
            return choice(shelf, name)(**fields)
        except ValidationError as error:
            raise UserError(f"The {KINDS[shelf]} {name} is not valid: {first_problem(error)}.") from None
    return value


def first_problem(error: ValidationError) -> str:
    """What pydantic found first, in words."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"] if not isinstance(part, int))
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = f", not {problem['input']!r}" if isinstance(problem["input"], str | int | float) else ""
    return printable(f"{place}: {message}{given}" if place else message)
