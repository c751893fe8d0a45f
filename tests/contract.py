"""Small trainings, batches and steps for tests of the contracts of methods, alignments and nets."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from afda.data.batch import Batch, View
from afda.data.images import DataSet, Images, Preparation
from afda.machine.group import ALONE, Group
from afda.machine.runtime import Runtime
from afda.methods import Method, Step
from afda.nets import Networks, Output
from afda.recipe import Recipe
from afda.registry import find_plugin, list_names
from afda.schedules import Optimisation
from afda.training.loop import run_updates
from afda.training.state import Training, begin

METHODS = [*list_names("methods"), "vat+entropy", "mean-teacher+temporal-ensembling"]
ALIGNMENTS = ["none", *list_names("align")]
NETS = list_names("nets")
TINY = {"small": 0.25, "conv-large": 0.0625, "wrn-28-2": 0.125, "shake-shake": 0.02}
CPU = Runtime(torch.device("cpu"))
CLASSES = ("a", "b", "c")


@cache
def make_data(net: str = "small") -> DataSet:
    """Return 40 inputs of noise for a net, 15 of them labelled."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 3
    y[15:] = -1
    if net == "mlp":
        x = torch.randn(40, 12, generator=random)
    else:
        x = torch.randint(0, 256, (40, 3, 8, 8), generator=random, dtype=torch.uint8)
    return DataSet("noise", CLASSES, Images(x, y), preparation=Preparation(shift=1, flip=True))


def fill_fields(kind: str, name: str, **values: float) -> dict[str, object]:
    """Return a plug-in's name and those of the values that it has fields for."""
    fields = find_plugin(kind, name).model_fields
    return {"name": name, **{field: value for field, value in values.items() if field in fields}}


def make_recipe(method: str | Method, align: str = "none", net: str = "small", **fields: object) -> Recipe:
    """Return a recipe of a few tiny updates. Pseudo-labels need no confidence: the untrained net has none."""
    methods = (
        (method,)
        if isinstance(method, Method)
        else tuple(fill_fields("methods", name, threshold=0) for name in method.split("+"))
    )
    return Recipe(
        data="noise",
        net=fill_fields("nets", net, width=TINY.get(net, 0.1)),
        method=methods,
        align=align if align == "none" else fill_fields("align", align, hidden=8),
        **{"steps": 4, "labelled_batch": 5, "unlabelled_batch": 7, "preparation": make_data(net).preparation, **fields},
    )


def make_training(
    method: str | Method,
    align: str = "none",
    net: str = "small",
    runtime: Runtime = CPU,
    group: Group = ALONE,
    **fields: object,
) -> Training:
    """Return a training of `make_recipe` before its first update."""
    return begin(make_recipe(method, align, net, **fields), make_data(net), runtime, group)


def update(training: Training, times: int | None = None) -> Training:
    """Do some updates, or all that are left, and return the training."""
    for done, _ in enumerate(run_updates(training), start=1):
        if done == times:
            break
    return training


def list_tensors(training: Training) -> list[Tensor]:
    """Return all numbers of a training's state but the time, in order."""

    def walk(value: object) -> Iterator[Tensor]:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, float):
            yield torch.tensor(value, dtype=torch.float64)
        elif isinstance(value, dict):
            for key in value:
                if key != "seconds":
                    yield from walk(value[key])
        elif isinstance(value, list | tuple):
            for element in value:
                yield from walk(element)

    return list(walk(training.save_state()))


def convert_to_float64(training: Training) -> Training:
    """Let a training go on in float64, and return it."""
    modules = [training.nets.student, training.nets.teacher, training.normaliser, training.shares]
    for module in (*modules, *training.owned.values(), *training.averaged.values()):
        if module is not None:
            module.double()
    return training


def make_batch(x: Tensor, u: Tensor, key: int = 0, y: Tensor | None = None, others: tuple[View, ...] = ()) -> Batch:
    """Return a batch whose first view is (x, u); more views are those given, in order."""
    y = torch.zeros(len(x), dtype=torch.int64) if y is None else y
    views = (View(lambda: x, lambda: u), *others)
    rows = torch.arange(len(x) + len(u))
    return Batch(y, rows[: len(x)], rows[len(x) :], key, ALONE, lambda n, _: views[n])


def make_step(nets: Networks, batch: Batch, clean: Output, t: float = 0.0, **fields: object) -> Step:
    """Return what a method sees of an update; the views that it draws begin with the second."""
    labelled = len(batch.y)
    return Step(
        nets=nets,
        batch=replace_views(batch),
        clean=clean,
        labelled=clean.rows(slice(labelled)),
        unlabelled=clean.rows(slice(labelled, None)),
        t=t,
        **{"number": 0, "rates": Optimisation().compute_rates(t), **fields},
    )


def replace_views(batch: Batch, **fields: object) -> Batch:
    """Return the same batch, of which only the first view is drawn; with some fields changed."""
    return replace(batch, views=0, **fields)
