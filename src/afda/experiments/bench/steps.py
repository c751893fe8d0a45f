"""The cost of a training step: relative to a bare loop, with alignment, by precision and by the size of the data."""

import contextlib
import mmap
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from afda.data.images import DataSet, Images, Preparation
from afda.experiments.bench.bare import METHODS, build_bare_step
from afda.experiments.bench.timing import Row, Task, compute_ratio, measure_in_turns
from afda.machine.runtime import PRECISIONS, Runtime, has_fast_bfloat16
from afda.recipe import Recipe
from afda.recipes import AFDA, recipe
from afda.training.loop import run_updates
from afda.training.state import begin

NETS = {"conv-large": "svhn-headline", "cpu": "svhn-ablation-cpu"}
"""The nets that are measured and their recipes: ConvLarge with batches of 32 + 128, and the cpu profile's net."""
ENDLESS_STEPS = 10**9
COMPILED_VERSIONS = 100
"""Limit on compiled versions of one function, one per layer shape, precision and layout. Torch's default is 8."""
SETTINGS = {
    "float32-channels-last": ("float32", torch.channels_last, False),
    "float32-compiled": ("float32", torch.contiguous_format, True),
    "bfloat16": ("bfloat16", torch.contiguous_format, False),
    "bfloat16-compiled": ("bfloat16", torch.contiguous_format, True),
    "bfloat16-channels-last": ("bfloat16", torch.channels_last, False),
    "float32-channels-last-compiled": ("float32", torch.channels_last, True),
    "bfloat16-channels-last-compiled": ("bfloat16", torch.channels_last, True),
}
"""Precision, memory layout and compilation of the rows of precision_gain."""


def make_noise_images(count: int = 10_000, x: torch.Tensor | None = None) -> DataSet:
    """Return labelled random images, or `x`, of the size of SVHN's."""
    random = torch.Generator().manual_seed(0)
    if x is None:
        x = torch.randint(0, 256, (count, 3, 32, 32), generator=random, dtype=torch.uint8)
    y = torch.arange(count) % 10
    return DataSet("svhn", tuple("0123456789"), Images(x, y), preparation=Preparation(shift=2))


def build_recipe(net: str, method: str, align: str, data: DataSet) -> Recipe:
    """Return the recipe of a net from `NETS`, without an end."""
    return recipe(NETS[net], data, method, align, labels=1000).with_settings([f"steps={ENDLESS_STEPS}"])


def list_precisions(runtime: Runtime) -> dict[str, str]:
    """Return the precision in which each net is measured, alone and with VAT."""
    data = make_noise_images(2000)
    return {
        net + suffix: begin(build_recipe(net, method, "none", data), data, runtime).runtime.precision
        for net in NETS
        for method, suffix in (("supervised", ""), ("vat", "/vat"))
    }


def build_real_step(recipe: Recipe, data: DataSet, runtime: Runtime) -> Callable[[], object]:
    """Return a function that makes the next step of a training."""
    updates = run_updates(begin(recipe, data, runtime))
    return lambda: next(updates)


def measure_step_efficiency(net: str, method: str, runtime: Runtime) -> Iterator[Row]:
    """Compare real and bare steps, plain and aligned, in the same rounds, and so also the cost of alignment."""
    data = make_noise_images()
    plain, aligned = (build_recipe(net, method, align, data) for align in ("none", "adversarial"))
    work = {
        "plain": build_real_step(plain, data, runtime),
        "aligned": build_real_step(aligned, data, runtime),
        "bare_plain": build_bare_step(begin(plain, data, runtime)),
        "bare_aligned": build_bare_step(begin(aligned, data, runtime)),
    }
    if not plain.uses_unlabelled:  # entropy adds the unlabelled pass of alignment and hardly more
        work["unlabelled_pass"] = build_real_step(build_recipe(net, "entropy", "none", data), data, runtime)
    times = measure_in_turns(**work)
    for way in ("plain", "aligned"):
        yield compute_ratio(f"step_efficiency/{net}/{method}/{way}", times[f"bare_{way}"], times[way])
    without = times.get("unlabelled_pass", times["plain"])
    yield compute_ratio(f"alignment_price/{net}/{method}", times["aligned"], without, minus=1.0)


def measure_precision_gain(net: str, runtime: Runtime) -> Iterator[Row]:
    """Compare a forward and backward pass of an unlabelled batch in every setting with plain float32.

    bfloat16 is torch's own, also where training would emulate it.
    """
    data = make_noise_images(1000)
    made = build_recipe(net, "supervised", "none", data)
    images = torch.rand(made.unlabelled_batch, 3, 32, 32, device=runtime.device)
    y = (torch.arange(made.unlabelled_batch) % 10).to(runtime.device)

    def build_passes(precision: str, layout: torch.memory_format, compiled: bool) -> Callable[[], None]:
        student = begin(made, data, runtime).nets.student.to(memory_format=layout)  # type: ignore[call-overload]
        x = images.to(memory_format=layout)
        forward = torch.compile(student) if compiled else student

        def run() -> None:
            with torch.autocast(runtime.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                loss = F.cross_entropy(forward(x, track=True).logits, y)
            student.zero_grad()
            loss.backward()

        return run

    work = {"plain": build_passes("float32", torch.contiguous_format, False)}
    with torch._dynamo.config.patch(cache_size_limit=COMPILED_VERSIONS):
        for name, setting in SETTINGS.items():
            run = build_passes(*setting)
            # A machine may lack the compiler that torch.compile needs.
            with contextlib.suppress(Exception) if "compiled" in name else contextlib.nullcontext():
                run()
                work[name] = run
        times = measure_in_turns(**work)
    for name in (name for name in SETTINGS if name in times):
        yield compute_ratio(f"precision_gain/{net}/{name}", times["plain"], times[name])


def measure_step_precision_gain(net: str, method: str, runtime: Runtime) -> Iterator[Row]:
    """Compare an aligned step in bfloat16 with one in float32, which decides `--precision auto`.

    Yields nothing where bfloat16 would be emulated.
    """
    if not has_fast_bfloat16(runtime.device):
        return
    data = make_noise_images()
    made = build_recipe(net, method, "adversarial", data)
    runtimes = {name: replace(runtime, precision=name) for name in PRECISIONS if name != "auto"}
    times = measure_in_turns(**{name: build_real_step(made, data, runtime) for name, runtime in runtimes.items()})
    yield compute_ratio(f"step_precision_gain/{net}/{method}", times["float32"], times["bfloat16"])


def measure_size_ratio(runtime: Runtime, few: int = 10_000, many: int = 1_000_000) -> Iterator[Row]:
    """Compare a step on a million memory-mapped images with one on ten thousand.

    The files are sparse, so they take no space on a disk. Every page is read once before, so that no step waits for the
    disk. Yields nothing if there is no space for files in memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < 3072 * (few + many):  # in a memory file system, sparse files take space
            return
        sets = {}
        for name, count in (("few", few), ("many", many)):
            mapped = np.memmap(Path(folder) / name, np.uint8, "w+", shape=(count, 3, 32, 32))
            mapped.reshape(-1)[:: mmap.PAGESIZE].sum()
            sets[name] = make_noise_images(count, torch.from_numpy(mapped))
        recipes = {name: build_recipe("cpu", "vat", "adversarial", data) for name, data in sets.items()}
        work = {name: build_real_step(recipes[name], data, runtime) for name, data in sets.items()}
        times = measure_in_turns(**work)
    yield compute_ratio("step_size_ratio", times["many"], times["few"])


def list_tasks(runtime: Runtime) -> Iterator[tuple[str, Task]]:
    """Yield the measurements of steps, each with the beginning of its rows' names."""
    for net in reversed(NETS):
        for method in (*METHODS, AFDA):
            yield f"step_efficiency/{net}/{method}", partial(measure_step_efficiency, net, method, runtime)
            yield f"step_precision_gain/{net}/{method}", partial(measure_step_precision_gain, net, method, runtime)
        yield f"precision_gain/{net}", partial(measure_precision_gain, net, runtime)
    yield "step_size_ratio", partial(measure_size_ratio, runtime)
