"""Strong views of labelled images, by hand."""

import pytest
import torch

from afda.data.batch import View
from afda.methods.strong_labels import StrongLabels
from afda.nets import Networks
from afda.nets.small import Small
from afda.recipes import recipe
from afda.training.baseline import make_baseline
from contract import make_batch, make_step, make_training, update


def images(seed, n):
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_the_loss_is_that_of_strong_views_of_labelled_images():
    torch.manual_seed(0)
    nets = Networks(Small(width=1 / 8, dropout=0).build((1, 8, 8), 4))
    strong = View(lambda: images(3, 3), lambda: images(4, 5))
    batch = make_batch(images(1, 3), images(2, 5), y=torch.tensor([0, 1, 2]), others=(strong,))
    loss = StrongLabels(weight=0.7).loss(make_step(nets, batch, nets.run(batch.x, batch.u)))
    rows = nets.student(images(3, 3)).logits.double().softmax(1)
    expected = -sum(rows[i, label].log() for i, label in enumerate([0, 1, 2])) / 3
    assert loss.terms["strong_supervised"].item() == pytest.approx(0.7 * expected.item(), rel=1e-4)


def test_a_weight_average_is_evaluated_unless_its_decay_is_zero():
    assert [StrongLabels().teacher_decay(step) for step in (0, 80)] == pytest.approx([1 / 2, 0.9])
    assert StrongLabels(decay=0).teacher_decay(5) is None
    training = update(make_training("strong-labels"))
    assert training.make_model().classifier is training.nets.teacher


def test_the_baseline_keeps_what_is_done_to_labelled_images(digits):
    made = recipe("own-images", digits, "fixmatch+strong-labels", labels=50)
    baseline = make_baseline(made.with_settings(["method.strong-labels.weight=0.5"]))
    assert baseline.title == "strong-labels"
    assert baseline.method[0].weight == 0.5
    assert not baseline.uses_unlabelled
    assert make_baseline(recipe("own-images", digits, labels=50)).title == "supervised"
