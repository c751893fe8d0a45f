"""What a training step costs: against its limit, with and without alignment, by precision, and by size of the data."""

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

from afda.algorithm import steps
from afda.bench.bare import KNOWN, bare_step
from afda.bench.timing import Row, in_turns, ratio
from afda.data.images import DataSet, Images, Preparation
from afda.recipe import Recipe
from afda.recipes import AFDA, recipe
from afda.runtime import PRECISIONS, Runtime, fast_bfloat16
from afda.training import begin

NETS = {"conv-large": "svhn-headline", "cpu": "svhn-ablation-cpu"}
"""The nets that are measured, and the recipes that say how: ConvLarge with 32 + 128 images, and the cpu profile's."""
FOREVER = 10**9
VERSIONS = 100
"""How often one function is compiled, for every layer's shape, precision and layout. After 8, torch would stop."""
SETTINGS = {
    "float32-channels-last": ("float32", torch.channels_last, False),
    "float32-compiled": ("float32", torch.contiguous_format, True),
    "bfloat16": ("bfloat16", torch.contiguous_format, False),
    "bfloat16-compiled": ("bfloat16", torch.contiguous_format, True),
    "bfloat16-channels-last": ("bfloat16", torch.channels_last, False),
    "float32-channels-last-compiled": ("float32", torch.channels_last, True),
    "bfloat16-channels-last-compiled": ("bfloat16", torch.channels_last, True),
}


def noise_images(count: int = 10_000, x: torch.Tensor | None = None) -> DataSet:
    """Images like SVHN's in size; what is on them does not matter here."""
    random = torch.Generator().manual_seed(0)
    if x is None:
        x = torch.randint(0, 256, (count, 3, 32, 32), generator=random, dtype=torch.uint8)
    y = torch.arange(count) % 10
    return DataSet("svhn", tuple("0123456789"), Images(x, y), preparation=Preparation(shift=2))


def recipe_for(net: str, method: str, align: str, data: DataSet) -> Recipe:
    return recipe(NETS[net], data, method, align, labels=1000).with_settings([f"steps={FOREVER}"])


def precisions(runtime: Runtime) -> dict[str, str]:
    """In which precision each of the nets is measured, by itself and with VAT."""
    data = noise_images(2000)
    return {
        net + suffix: begin(recipe_for(net, method, "none", data), data, runtime).runtime.precision
        for net in NETS
        for method, suffix in (("supervised", ""), ("vat", "/vat"))
    }


def real_step(made: Recipe, data: DataSet, runtime: Runtime) -> Callable[[], object]:
    updates = steps(begin(made, data, runtime))
    return lambda: next(updates)


def step_efficiency(net: str, method: str, runtime: Runtime) -> Iterator[Row]:
    """A step of ours and the bare one, plain and aligned, in the same rounds; so also the price of alignment."""
    data = noise_images()
    plain, aligned = (recipe_for(net, method, align, data) for align in ("none", "adversarial"))
    work = {
        "plain": real_step(plain, data, runtime),
        "aligned": real_step(aligned, data, runtime),
        "bare_plain": bare_step(begin(plain, data, runtime)),
        "bare_aligned": bare_step(begin(aligned, data, runtime)),
    }
    if not plain.uses_unlabelled:  # entropy needs one more pass, of the unlabelled images, and next to nothing besides
        work["passing"] = real_step(recipe_for(net, "entropy", "none", data), data, runtime)
    taken = in_turns(**work)
    for way in ("plain", "aligned"):
        yield ratio(f"step_efficiency/{net}/{method}/{way}", taken[f"bare_{way}"], taken[way])
    yield ratio(f"alignment_price/{net}/{method}", taken["aligned"], taken.get("passing", taken["plain"]), less=1.0)


def precision_gain(net: str, runtime: Runtime) -> Iterator[Row]:
    """Forward and backward of as many images as a step has unlabelled, by precision, layout and compilation, against
    plain float32.

    bfloat16 is torch's own also where training would emulate it.
    """
    data = noise_images(1000)
    made = recipe_for(net, "supervised", "none", data)
    images = torch.rand(made.unlabelled_batch, 3, 32, 32, device=runtime.device)
    y = (torch.arange(made.unlabelled_batch) % 10).to(runtime.device)

    def passes(precision: str, layout: torch.memory_format, compiled: bool) -> Callable[[], None]:
        student = begin(made, data, runtime).nets.student.to(memory_format=layout)  # type: ignore[call-overload]
        x = images.to(memory_format=layout)
        run = torch.compile(student) if compiled else student

        def do() -> None:
            with torch.autocast(runtime.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                loss = F.cross_entropy(run(x, track=True).logits, y)
            student.zero_grad()
            loss.backward()

        return do

    work = {"plain": passes("float32", torch.contiguous_format, False)}
    with torch._dynamo.config.patch(cache_size_limit=VERSIONS):
        for name, setting in SETTINGS.items():
            do = passes(*setting)
            # Compiling needs a compiler, which a machine may lack.
            with contextlib.suppress(Exception) if "compiled" in name else contextlib.nullcontext():
                do()
                work[name] = do
        taken = in_turns(**work)
    for name in (name for name in SETTINGS if name in taken):
        yield ratio(f"precision_gain/{net}/{name}", taken["plain"], taken[name])


def step_precision_gain(net: str, method: str, runtime: Runtime) -> Iterator[Row]:
    """A whole aligned step in bfloat16 against one in float32: what `--precision auto` weighs. Nothing where bfloat16
    would be emulated."""
    if not fast_bfloat16(runtime.device):
        return
    data = noise_images()
    made = recipe_for(net, method, "adversarial", data)
    taken = in_turns(**{name: real_step(made, data, replace(runtime, precision=name)) for name in PRECISIONS[1:]})
    yield ratio(f"step_precision_gain/{net}/{method}", taken["float32"], taken["bfloat16"])


def size_ratio(runtime: Runtime, few: int = 10_000, many: int = 1_000_000) -> Iterator[Row]:
    """A step on a million memory-mapped images against one on ten thousand.

    The files have holes instead of pixels, so they take no space on a disk. Every page is read once before, so that no
    step waits for one.
    """
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < 3072 * (few + many):  # where the folder is in memory, holes take space
            return
        sets = {}
        for name, count in (("few", few), ("many", many)):
            mapped = np.memmap(Path(folder) / name, np.uint8, "w+", shape=(count, 3, 32, 32))
            mapped.reshape(-1)[:: mmap.PAGESIZE].sum()
            sets[name] = noise_images(count, torch.from_numpy(mapped))
        work = {name: real_step(recipe_for("cpu", "vat", "adversarial", d), d, runtime) for name, d in sets.items()}
        taken = in_turns(**work)
    yield ratio("step_size_ratio", taken["many"], taken["few"])


def tasks(runtime: Runtime) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    """What can be measured here, each with the beginning of its rows' names."""
    for net in reversed(NETS):
        for method in (*KNOWN, AFDA):
            yield f"step_efficiency/{net}/{method}", partial(step_efficiency, net, method, runtime)
            yield f"step_precision_gain/{net}/{method}", partial(step_precision_gain, net, method, runtime)
        yield f"precision_gain/{net}", partial(precision_gain, net, runtime)
    yield "step_size_ratio", partial(size_ratio, runtime)
