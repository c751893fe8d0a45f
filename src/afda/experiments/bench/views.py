"""The cost of a strong view relative to the network passes on the same images."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from afda.data.strong import draw_strong, strong_views
from afda.experiments.bench.steps import build_recipe, make_noise_images
from afda.experiments.bench.timing import Row, compute_ratio, measure_in_turns
from afda.machine.runtime import Runtime
from afda.training.state import begin

IMAGES = 128


def measure_strong_view(runtime: Runtime) -> Iterator[Row]:
    """Compare a strong view of 128 images of 32x32x3 with a forward and backward pass of the cpu profile's net."""
    data = make_noise_images(1000)
    training = begin(build_recipe("cpu", "supervised", "none", data), data, runtime)
    runtime, student = training.runtime, training.nets.student
    pixels = data.train.x[:IMAGES].to(runtime.device)
    labels = data.train.y[:IMAGES].to(runtime.device)
    x = training.normaliser(pixels)
    generator = torch.Generator().manual_seed(0)

    def make_view() -> None:
        strong_views(pixels, draw_strong(IMAGES, data.train.shape, generator, runtime.device))

    def pass_both_ways() -> None:
        with runtime.autocast():
            loss = F.cross_entropy(student(x, track=True).logits, labels)
        student.zero_grad()
        loss.backward()

    times = measure_in_turns(view=make_view, passes=pass_both_ways)
    yield compute_ratio("strong_view", times["view"], times["passes"])
