"""The registry of plug-ins: methods, networks, alignments and data sets, found by name.

Each file of a plug-in folder defines one `Plugin`; the file's name in kebab-case is the name that users type. Installed
packages add more through the entry points `afda.methods`, `afda.nets`, `afda.align` and `afda.data`. A plug-in appears
everywhere by itself: command line, recipes, lists, tables and report.
"""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer

from afda.errors import UserError, describe, printable, unknown


class Kind(NamedTuple):
    """What one plug-in of a kind is called, and the folder of the built-in ones."""

    label: str
    package: str


KINDS = {
    "methods": Kind("method", "afda.methods"),
    "nets": Kind("net", "afda.nets"),
    "align": Kind("alignment", "afda.align"),
    "data": Kind("data set", "afda.data.sets"),
}


class Value(BaseModel):
    """A frozen value with validated fields; equal values describe the same thing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Metric(Value):
    """A number that a training reports, declared once; log, terminal, tables and report show it."""

    name: str
    """The key in the log."""
    label: str
    """What people read."""
    description: str
    unit: Literal["", "%", "share", "1e-3"] = ""
    """`share` is a fraction of 1, shown in percent; `1e-3` is shown in thousandths."""
    direction: Literal["lower", "higher", "none"] = "none"
    """Which direction is better, if any."""
    term: bool = False
    """Whether it is a term of the loss."""
    in_progress: bool = True
    """Whether the progress line shows it; not what merely follows from the step."""

    def show(self, value: float) -> str:
        """Return the value as text, with its unit."""
        if self.unit == "%":
            return f"{value:.1f} %"
        if self.unit == "share":
            return f"{value:.0%}"
        if self.unit == "1e-3":
            return f"{1000 * value:.1f}e-3"
        return f"{value:.3f}"


class Plugin(Value):
    """A value chosen by name, such as a method or a net; its fields are its hyper-parameters."""

    kind: ClassVar[str] = ""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """The terms and metrics that it reports, beyond those that are already declared."""
    entry_point: ClassVar[str | None] = None
    """The name under which an installed package registers it."""

    @classmethod
    def name(cls) -> str:
        """Return the name that users type."""
        return cls.__dict__.get("entry_point") or cls.__module__.rpartition(".")[2].replace("_", "-")

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the class's docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @model_serializer(mode="wrap")
    def _with_name(self, fields: Any) -> dict[str, Any]:
        return {"name": self.name(), **fields(self)}


@cache
def list_built_in(kind: str) -> dict[str, str]:
    """Return the names of the built-in plug-ins with their modules, without importing them."""
    spec = find_spec(KINDS[kind].package)
    folder = list(spec.submodule_search_locations or ()) if spec is not None else []
    modules = (module.name for module in pkgutil.iter_modules(folder) if not module.name.startswith("_"))
    return {module.replace("_", "-"): f"{KINDS[kind].package}.{module}" for module in sorted(modules)}


@cache
def list_installed(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages by name; built-in names cannot be replaced."""
    return {point.name: point for point in entry_points(group=f"afda.{kind}") if point.name not in list_built_in(kind)}


def list_names(kind: str) -> list[str]:
    """Return the names of all plug-ins of a kind, without importing them."""
    return sorted({*list_built_in(kind), *list_installed(kind)})


@cache
def find_plugin(kind: str, name: str) -> type[Plugin]:
    """Return the class that a name stands for."""
    if name in list_installed(kind):
        return load_entry_point(kind, list_installed(kind)[name])
    if name not in list_built_in(kind):
        raise unknown(KINDS[kind].label, name, [*list_names(kind), "none"] if kind == "align" else list_names(kind))
    module = importlib.import_module(list_built_in(kind)[name])
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
        and value.kind == kind
    )
    return found


def load_entry_point(kind: str, point: EntryPoint) -> type[Plugin]:
    """Return the plug-in class of an installed package, or say which package is broken."""
    package = point.dist.name if point.dist is not None else point.value
    label = KINDS[kind].label
    if len({other.value for other in entry_points(group=f"afda.{kind}", name=point.name)}) > 1:
        raise UserError(f"Several packages bring a {label} called {point.name}; uninstall all but one of them.")
    try:
        found = point.load()
    except Exception as error:  # whatever somebody else's module raises
        raise UserError(f"The {label} {point.name} of the package {package} fails: {describe(error)}.") from error
    if not (isinstance(found, type) and issubclass(found, Plugin) and found.kind == kind):
        raise UserError(f"The entry point {point.name} of the package {package} is not a {label} class.")
    found.entry_point = point.name
    return found


def create(kind: str, value: Any) -> Any:
    """Return the plug-in for a name, or for a mapping with a name and fields."""
    if isinstance(value, str):
        return find_plugin(kind, value)()
    if isinstance(value, dict):
        fields = dict(value)
        name = fields.pop("name", None)
        if not isinstance(name, str):
            raise UserError(f"A {KINDS[kind].label} needs a name; choose from: {', '.join(list_names(kind))}.")
        try:
            return find_plugin(kind, name)(**fields)
        except ValidationError as error:
            raise UserError(f"The {KINDS[kind].label} {name} is not valid: {describe_invalid(error)}.") from None
    return value


def describe_invalid(error: ValidationError) -> str:
    """Return the first problem that pydantic found, in words."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"] if not isinstance(part, int))
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = f", not {problem['input']!r}" if isinstance(problem["input"], str | int | float) else ""
    return printable(f"{place}: {message}{given}" if place else message)
