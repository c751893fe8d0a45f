"""Several processes train as one does: the same batch, the same updates, one log, one result."""

import io
from functools import partial

import pytest
import torch

from afda.errors import UserError
from afda.machine.group import ALONE, Group
from afda.training.run import assist
from afda.training.state import begin, check_shares
from contract import ALIGNMENTS, CPU, METHODS, NETS, convert_to_float64, list_tensors, make_data, make_recipe, update
from workers import assert_agreement, run_in_processes


def make_training(group, method, align="none", net="small", settings=()):
    recipe = make_recipe(method, align, net, labelled_batch=4, unlabelled_batch=8)
    training = begin(recipe.with_settings(list(settings)), make_data(net), CPU, group)
    if training.recipe.outliers == "down-weight":
        weights = torch.linspace(0.1, 1, len(training.split.unlabelled), dtype=torch.float64)
        training.set_pool_weights(weights, 0.5)
    return training


def compute_state(group, case):
    """Return the state after three updates in float64, and the sums of the loss terms."""
    return list_tensors(update(convert_to_float64(make_training(group, *case)), 3))


class Scripted(Group):
    """A group that is told what rank 0 broadcasts."""

    content = b""

    def broadcast(self, content=b""):
        return self.content


def test_the_others_take_the_precision_of_the_first(monkeypatch):
    """Rank 0 continues in the precision that the run was begun in, whatever each would choose by itself."""
    training, buffer = make_training(ALONE, "vat"), io.BytesIO()
    training.step = training.recipe.steps  # nothing is left to do
    torch.save({**training.save_state(), "precision": "bfloat16"}, buffer)
    monkeypatch.setattr(Scripted, "content", buffer.getvalue())
    training.group = Scripted()
    assert training.runtime.precision == "float32"
    assist(training)
    assert training.runtime.precision == "bfloat16"


def compute_states(group, cases):
    """Return a process's part of the first batch, and its state after some updates of each case."""
    batch = make_training(group, "pi-model").batches.draw(0)
    states = [compute_state(group, case) for case in cases]
    return {"x": batch.x, "y": batch.y, "u": batch.u, "i": batch.i, "j": batch.j, "states": states}


SAMPLE = [
    ("supervised", "none"),
    ("pi-model", "adversarial"),
    ("mean-teacher", "reversal"),
    ("vat+entropy", "adversarial"),
    ("entropy", "mmd", "mlp"),
    ("fixmatch", "adversarial"),
    ("fixmatch", "none", "mlp"),
    ("mean-teacher+temporal-ensembling", "none"),
    ("entropy", "none", "mlp", ["sampling=balanced"]),
    ("entropy", "adversarial", "mlp", ["logit_adjustment=1", "labels=7"]),
    ("entropy", "adversarial", "mlp", ["method.entropy.prior=labelled", "align.shares=matched"]),
    ("entropy", "mmd", "mlp", ["method.entropy.prior=uniform", "align.shares=matched", "shares_by=bbse"]),
    ("vat", "adversarial", "mlp", ["outliers=down-weight"]),
    (
        "vat+entropy",
        "adversarial",
        "small",
        ["batchnorm=together", "statistics=both", "net.dropout=0", "order=literal", "supervised_mean=batch"],
    ),
]
LONG_PROBE = {method: ["method.vat.xi=0.1"] for method in METHODS if "vat" in method.split("+")}
"""A short probe differences nearly equal passes: its rounding alone, which Adam magnifies, is up to 4e-7 here."""
ALL = [
    *((method, align) for method in METHODS for align in ALIGNMENTS),
    *((method, "adversarial", net) for method in METHODS for net in NETS),
    *((method, "adversarial", "shake-shake", ["net.heads=2", *LONG_PROBE.get(method, ())]) for method in METHODS),
    *((method, "adversarial", "small", SAMPLE[-1][3]) for method in METHODS if method != "supervised"),
    *(("vat", "adversarial", "small", [f"align.form={form}"]) for form in ("inverted", "unlabelled-only")),
    ("vat", "adversarial", "small", ["optimisation.optimizer=sgd", "align.learning_rate=0.01"]),
    ("vat", "none", "small", ["method.vat.on=unlabelled", "method.vat.noise=fresh", "method.vat.iterations=2"]),
    ("mean-teacher", "none", "small", ["method.mean-teacher.on=all"]),
    ("pi-model", "none", "small", ["method.pi-model.gradient=first"]),
]


def test_two_processes_agree_with_one(tmp_path):
    found = run_in_processes(compute_states, 2, tmp_path, SAMPLE)
    assert_agreement(SAMPLE, partial(compute_state, ALONE), [process["states"] for process in found])
    # Each has other images, the two together the batch; labels and indices are those of all.
    whole = make_training(ALONE, "pi-model").batches.draw(0)
    assert torch.equal(torch.cat([process["x"] for process in found]), whole.x)
    assert torch.equal(torch.cat([process["u"] for process in found]), whole.u)
    for name in ("y", "i", "j"):
        assert all(torch.equal(process[name], getattr(whole, name)) for process in found)
    images = torch.cat([whole.x, whole.u]).flatten(1)
    assert len(images.unique(dim=0)) == len(images) == 12


@pytest.mark.soak
@pytest.mark.parametrize("count", [2, 4])
def test_processes_agree_with_one_in_everything(tmp_path, count):
    found = run_in_processes(compute_states, count, tmp_path, ALL)
    assert_agreement(ALL, partial(compute_state, ALONE), [process["states"] for process in found])


def test_a_batch_that_cannot_be_shared():
    recipe, group = make_training(ALONE, "pi-model").recipe, Group(0, 3)
    with pytest.raises(UserError, match=r"3 processes cannot share batches of 4 labelled .*--processes can be 2"):
        check_shares(recipe, group)
    check_shares(recipe.with_settings(["method=supervised", "labelled_batch=6", "unlabelled_batch=8"]), group)
