"""The contract of a data set: one class with `load` and its recipes is enough."""

from importlib.metadata import EntryPoint

import pytest
import torch

from afda import registry
from afda.data.images import DataSet, Images
from afda.data.source import NamedRecipe, Source
from afda.errors import UserError
from afda.recipes import build_recipe, choose_default_recipe, choose_methods, list_recipes, recipe
from afda.registry import find_plugin, list_names


def short_one(data, method, align, labels=None):
    """A recipe of another package."""
    return build_recipe(data, labels=labels, net="small", method=choose_methods(method), align=align, steps=900)


class Stripes(Source):
    """Striped images."""

    recipes = (NamedRecipe(short_one, cpu=("steps=90", "method.vat.radius=3.0"), method="entropy"),)

    def load(self, folder):
        x = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
        return DataSet(self.name(), ("a", "b"), Images(x, torch.tensor([0, 1, 0, 1])), source=self.name())


class Plain(Stripes):
    """Striped images without a recipe."""

    recipes = ()


@pytest.fixture
def installed(monkeypatch):
    """Two data sets of an installed package, and one that cannot be imported."""
    points = {
        "test-stripes": EntryPoint("test-stripes", f"{__name__}:Stripes", "afda.data"),
        "test-plain": EntryPoint("test-plain", f"{__name__}:Plain", "afda.data"),
    }
    monkeypatch.setattr(registry, "list_installed", lambda kind: points if kind == "data" else {})
    find_plugin.cache_clear()
    yield points
    find_plugin.cache_clear()
    Stripes.entry_point = Plain.entry_point = None


def test_an_installed_data_set_brings_its_recipes(installed):
    assert {"test-stripes", "svhn"} <= set(list_names("data"))
    assert {"test-stripes-short-one", "test-stripes-short-one-cpu", "own-images"} <= set(list_recipes())
    data = find_plugin("data", "test-stripes")().load(None)
    assert choose_default_recipe(data, "cpu") == "test-stripes-short-one-cpu"
    assert choose_default_recipe(data, "cuda") == "test-stripes-short-one"
    made = recipe("test-stripes-short-one-cpu", data)
    assert (made.data, made.steps, made.method[0].name()) == ("test-stripes", 90, "entropy")
    assert recipe("test-stripes-short-one-cpu", data, "vat").method[0].radius == 3
    assert list_recipes()["test-stripes-short-one"].named.summary == "A recipe of another package."


def test_a_data_set_without_recipes_is_trained_as_own_data_are(installed):
    data = find_plugin("data", "test-plain")().load(None)
    assert choose_default_recipe(data, "cpu") == "own-images"
    assert find_plugin("data", "test-plain").default_recipe("cpu") is None


def test_a_broken_package_does_not_harm_the_recipes_of_others(installed):
    installed["broken"] = EntryPoint("broken", "no_such_module:Data", "afda.data")
    data = find_plugin("data", "test-stripes")().load(None)
    assert recipe("own-images", data).data == "test-stripes"
    with pytest.raises(UserError, match="The data set broken of the package"):
        recipe("broken-short-one", data)


@pytest.mark.parametrize(
    ("source", "device", "expected"),
    [
        ("svhn", "cpu", "svhn-ablation-cpu"),
        ("svhn", "cuda", "svhn-ablation"),
        ("cifar10", "cpu", "cifar10-ablation-cpu"),
        ("digits", "cpu", "digits-demo"),
        ("digits", "cuda", "digits-demo"),
        ("/home/me/svhn", "cpu", "own-images"),
    ],
)
def test_default_recipes(source, device, expected):
    data = DataSet("x", ("a", "b"), Images(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])), source=source)
    assert choose_default_recipe(data, device) == expected


@pytest.mark.parametrize(("side", "device", "expected"), [(16, "cuda", "own-images"), (17, "cuda", "own-images-gpu")])
def test_photos_have_a_recipe_for_a_gpu(side, device, expected):
    data = DataSet("x", ("a", "b"), Images(torch.zeros(2, 3, side, 32), torch.tensor([0, 1])), source="/home/me/x")
    assert choose_default_recipe(data, device) == expected
    assert choose_default_recipe(data, "cpu") == "own-images"


def test_vectors_are_trained_by_their_own_recipe():
    data = DataSet("x", ("a", "b"), Images(torch.zeros(2, 5), torch.tensor([0, 1])), source="/home/me/x.npz")
    assert choose_default_recipe(data, "cpu") == "own-vectors"


def test_every_built_in_data_set_has_a_default_recipe():
    for name in registry.list_built_in("data"):
        chosen = find_plugin("data", name).default_recipe("cpu")
        assert chosen in list_recipes()
