"""Several processes train as one does: the same batch, the same updates, one log, one result."""

import itertools

import pytest
import torch
from test_conformance import ALIGNMENTS, METHODS, NETS, bits, data, training
from torch.multiprocessing import spawn

from afda import processes
from afda.algorithm import steps
from afda.runtime import Runtime
from afda.training import begin

CPU = Runtime(torch.device("cpu"))
TOLERANCE = 1e-9
"""Of the largest entry of a tensor of weights, optimiser state or statistics, after three updates in float64."""


def in_processes(work, count, folder, *arguments):
    """Run work(*arguments) in processes that have joined, and return what each of them returned."""
    spawn(joined, (count, str(folder), work, arguments), nprocs=count)
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


def joined(rank, count, folder, work, arguments):
    torch.set_num_threads(1)
    processes.join(rank, count, CPU.device, f"{folder}/meeting")
    torch.save(work(*arguments), f"{folder}/{rank}.pt")
    processes.leave()


def made(method, align="none", net="small", settings=()):
    recipe = training(method, align, net, labelled_batch=4, unlabelled_batch=8).recipe
    return begin(recipe.with_settings(list(settings)), data(net), CPU)


def updated(case):
    """The state after three updates in float64, and the sums of the loss terms."""
    at_work = made(*case)
    for part in (at_work.nets.student, at_work.nets.teacher, at_work.alignment, at_work.normaliser):
        if part is not None:
            part.double()
    list(itertools.islice(steps(at_work), 3))
    return bits(at_work)


def all_updated(cases):
    return [updated(case) for case in cases]


def distance(one, other):
    """The largest difference, by the largest entry. Below 0.01 an entry counts as 0.01: some gradients are rounding."""
    one, other = one.double(), other.double()
    return float((one - other).abs().max() / one.abs().max().clamp_min(0.01))


def distances(cases, count, folder):
    """How far each case's state on each process is from that of one process alone."""
    found = in_processes(all_updated, count, folder, cases)
    for i, case in enumerate(cases):
        alone = updated(case)
        assert len(alone) > 20
        yield case, max(distance(*pair) for rank in range(count) for pair in zip(alone, found[rank][i], strict=True))


SAMPLE = [
    ("supervised", "none"),
    ("pi-model", "adversarial"),
    ("mean-teacher", "reversal"),
    ("vat+entropy", "adversarial"),
    ("vat+entropy", "mmd"),
    ("vat+entropy", "adversarial", "mlp"),
    (
        "vat+entropy",
        "adversarial",
        "small",
        ["batchnorm=together", "statistics=both", "net.dropout=0", "order=literal", "supervised_mean=batch"],
    ),
]
ALL = [
    *((method, align) for method in METHODS for align in ALIGNMENTS),
    *((method, "adversarial", net) for method in METHODS for net in NETS),
    *((method, "adversarial", "shake-shake", ["net.heads=2"]) for method in METHODS),
    *((method, "adversarial", "small", SAMPLE[-1][3]) for method in METHODS if method != "supervised"),
    *(("vat", "adversarial", "small", [f"align.form={form}"]) for form in ("inverted", "unlabelled-only")),
    ("vat", "adversarial", "small", ["optimisation.optimizer=sgd", "align.learning_rate=0.01"]),
    ("vat", "none", "small", ["method.vat.on=unlabelled", "method.vat.noise=fresh", "method.vat.iterations=2"]),
    ("mean-teacher", "none", "small", ["method.mean-teacher.on=all"]),
    ("pi-model", "none", "small", ["method.pi-model.gradient=first"]),
]


def test_two_processes_agree_with_one(tmp_path):
    for case, off in distances(SAMPLE, 2, tmp_path):
        assert off < TOLERANCE, case


@pytest.mark.soak
@pytest.mark.parametrize("count", [2, 4])
def test_processes_agree_with_one_in_everything(tmp_path, count):
    for case, off in distances(ALL, count, tmp_path):
        assert off < TOLERANCE, case
