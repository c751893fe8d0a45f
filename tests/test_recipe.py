import json
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from afda.data.images import DataSet, Images, Preparation
from afda.errors import UserError
from afda.machine.runtime import Runtime, select_runtime
from afda.recipe import Recipe, list_paths, set_field
from afda.recipes import list_recipes, recipe
from afda.registry import list_names
from afda.schedules import Optimisation, Rates, compute_progress

METHODS = ("supervised", "pi-model", "mean-teacher", "vat", "entropy", "vat+entropy", "pi-model+entropy")


def data_for(name: str) -> DataSet:
    """A stand-in for the data that a recipe is about."""
    of = name.partition("-")[0]
    shape = (5,) if name == "own-vectors" else (1, 8, 8) if of == "digits" else (3, 32, 32)
    images = Images(torch.zeros(4, *shape), torch.tensor([0, 1, 0, 1]))
    return DataSet(of, ("a", "b"), images, preparation=Preparation(), balanced=of == "cifar10")


def made(name: str, method: str = "vat+entropy", align: str = "adversarial") -> Recipe:
    return recipe(name, data_for(name), method, align)


def sentence(error: pytest.ExceptionInfo[UserError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


# Values


@pytest.mark.parametrize("align", [*list_names("align"), "none"])
@pytest.mark.parametrize("method", METHODS)
def test_every_named_recipe_survives_json(tmp_path, method, align):
    for name in list_recipes():
        whole = made(name, method, align)
        (tmp_path / "recipe.json").write_text(whole.to_json())
        again = Recipe.read(tmp_path / "recipe.json")
        assert again == whole
        assert again.to_json() == whole.to_json()
        assert "+".join(m.name() for m in again.method) == method
        assert (again.align.name() if again.align else "none") == align


def test_frozen():
    whole = made("digits-demo")
    for value, field in ((whole, "steps"), (whole.optimisation, "learning_rate"), (whole.method[0], "radius")):
        with pytest.raises(ValidationError):
            setattr(value, field, 1)


@pytest.mark.parametrize(
    ("place", "thing"),
    [((), "The recipe"), (("optimisation",), "The recipe"), (("net",), "The net small"), (("align",), "The alignment")],
)
def test_extra_fields_are_refused(place, thing):
    fields = made("digits-demo").model_dump()
    inner = fields
    for part in place:
        inner = inner[part]
    inner["extra"] = 1
    with pytest.raises(UserError, match=f"{thing}.* not valid: .*extra") as error:
        Recipe.of(fields)
    sentence(error)


def test_nothing_about_the_machine():
    hardware = {
        "device",
        "precision",
        "threads",
        "workers",
        "cuda",
        "cpu",
        "out",
        "path",
        *Runtime.__dataclass_fields__,
    }
    for name in list_recipes():
        parts = {part for path in list_paths(made(name).model_dump()) for part in path.split(".")}
        assert not parts & hardware
    text = made("digits-demo").to_json()
    select_runtime("cpu", "bfloat16")
    assert made("digits-demo").to_json() == text


# Settings


@pytest.mark.parametrize("method", METHODS)
def test_every_path_can_be_set(method):
    for align in (*list_names("align"), "none"):
        whole = made("digits-demo", method, align)
        fields = whole.model_dump()
        known = list_paths(fields)
        assert {"steps", "net.width", "optimisation.learning_rate"} <= set(known)
        for path in known:
            set_field(fields, path, value_at(whole.model_dump(), path))
        assert Recipe.of(fields) == whole


def value_at(fields, path):
    for part in path.split("."):
        fields = {e["name"]: e for e in fields} if isinstance(fields, list | tuple) else fields
        fields = fields[part]
    return fields


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("steps=2000", "steps", 2000),
        ("labels=null", "labels", None),
        (" net.width = 0.5", "net.width", 0.5),
        ("method.vat.radius=2.5", "method.vat.radius", 2.5),
        ("method.vat.on=all", "method.vat.on", "all"),
        ('method.vat.on="all"', "method.vat.on", "all"),
        ("align.hidden=8", "align.hidden", 8),
        ("preparation.flip=true", "preparation.flip", True),
        ("optimisation.tail=1e-1", "optimisation.tail", 0.1),
        ("data=a=b", "data", "a=b"),
    ],
)
def test_settings(setting, path, value):
    before = made("digits-demo").model_dump()
    after = made("digits-demo").with_settings([setting]).model_dump()
    assert value_at(after, path) == value
    set_field(before, path, value)
    assert after == before


def test_whole_parts_can_be_set():
    changed = made("digits-demo").with_settings(["method=pi-model+entropy", "align=none", "net=mlp"])
    assert changed.title == "pi-model+entropy"
    assert (changed.align, changed.net.name()) == (None, "mlp")
    back = changed.with_settings(["align=mmd", 'net={"name": "small", "width": 2}', "method.entropy.weight=0.5"])
    assert back.title == "pi-model+entropy-mmd"
    assert (back.net.width, back.method[1].weight) == (2, 0.5)


def test_a_part_can_be_set_and_then_its_fields():
    settings = [
        "net=mlp",
        "net.hidden=16",
        "method=pi-model",
        "method.pi-model.weight=2",
        "align=mmd",
        "align.weight=3",
    ]
    changed = made("digits-demo").with_settings(settings)
    assert (changed.net.hidden, changed.method[0].weight, changed.align.weight) == (16, 2, 3)


def test_later_settings_win():
    assert made("digits-demo").with_settings(["steps=3", "steps=4"]).steps == 4


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("stesp", "steps"),
        ("net.widht", "net.width"),
        ("method.vat.raduis", "method.vat.radius"),
        ("optimization.learning_rate", "optimisation.learning_rate"),
        ("align.hiden", "align.hidden"),
        ("learning_rate", "align.learning_rate"),
        ("steps.more", "steps"),
        ("method.0", "method"),
        ("method.vat", "method.vat.xi"),
    ],
)
def test_an_unknown_path_suggests_the_nearest(path, near):
    with pytest.raises(UserError, match=f"no setting called '{path}'; did you mean '{near}'\\?"):
        made("digits-demo").with_settings([f"{path}=1"])


def test_a_list_of_numbers_has_no_paths_inside():
    with pytest.raises(UserError, match=r"did you mean 'align\.bandwidths'"):
        made("digits-demo", align="mmd").with_settings(["align.bandwidths.0.x=1"])
    assert made("digits-demo", align="mmd").with_settings(["align.bandwidths=[1, 2]"]).align.bandwidths == (1, 2)


def test_names_cannot_be_set_inside():
    assert not [path for path in list_paths(made("digits-demo").model_dump()) if path.split(".")[-1] == "name"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("steps", "path=value"),
        ("", "path=value"),
        ("=1", "no setting called ''"),
        ("steps=0", "steps: .*greater than or equal to 1, not 0"),
        ("steps=1.5", "steps: .*not 1.5"),
        ("steps=many", "steps: .*not 'many'"),
        ("steps=NaN", "steps: "),
        ("seed=-1", "seed: .*not -1"),
        ("optimisation.learning_rate=Infinity", "optimisation.learning_rate: .*finite"),
        (
            "optimisation.schedule=step",
            "optimisation.schedule: .*'linear-tail', 'ramps', 'cosine' or 'partial-cosine', not 'step'",
        ),
        ("method.vat.radius=-1", "method vat is not valid: radius: .*not -1"),
        ("align.hidden=0", "alignment adversarial is not valid: hidden.*not 0"),
        ("net.width=0", "net small is not valid: width: .*not 0"),
        ("net=smal", "no net called 'smal'; did you mean 'small'"),
        ("net=5", "net: "),
        ("net={}", "A net needs a name; choose from: .*small"),
        ("align=adverserial", "no alignment called 'adverserial'; did you mean 'adversarial'"),
        ("method=vat+vat", "a method is named twice"),
        ("method=vta", "no method called 'vta'; did you mean 'vat'"),
        ("method=[]", "method: "),
        ("method=", "no method called ''"),
        ("preparation=null", "preparation: "),
        ("labelled_batch=1", "labelled_batch: .*2, not 1"),
    ],
)
def test_bad_values_are_one_sentence(setting, words):
    with pytest.raises(UserError, match=words) as error:
        made("digits-demo").with_settings([setting])
    sentence(error)


def test_balanced_batches_need_no_logit_adjustment():
    with pytest.raises(UserError, match="class shares that logit_adjustment corrects for; use one") as error:
        made("digits-demo").with_settings(["sampling=balanced", "logit_adjustment=1"])
    sentence(error)


def test_statistics_need_images_that_pass():
    with pytest.raises(UserError, match="statistics can only be 'labelled'"):
        made("digits-demo", "supervised", "none").with_settings(["statistics=both"])
    assert made("digits-demo", "supervised", "mmd").with_settings(["statistics=both"]).uses_unlabelled


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"3", b"\xff\xfe", b"{}", b'{"data": "digits"}'])
def test_unreadable_recipe_files(tmp_path, content):
    if content is not None:
        (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(UserError) as error:
        Recipe.read(tmp_path / "recipe.json")
    sentence(error)


# Schedules


def test_progress():
    assert [compute_progress(s, 1000) for s in (0, 1, 999)] == [0, 0.001, 0.999]
    assert [compute_progress(s, 1000, 300) for s in (0, 299, 300, 599, 999)] == [0, 0, 0.3, 0.3, 0.9]


def test_linear_tail():
    o = Optimisation(learning_rate=2.0, tail=0.4, stairs=4)
    assert o.compute_rates(0.0) == o.compute_rates(0.599) == Rates(2.0, 0.9, 1.0)
    assert [o.compute_rates(t).learning_rate for t in (0.61, 0.71, 0.81, 0.91, 0.999)] == [2.0, 1.5, 1.0, 0.5, 0.5]
    assert o.compute_rates(0.61).beta1 == 0.5
    assert Optimisation(learning_rate=2.0, tail=0).compute_rates(0.999) == Rates(2.0, 0.9, 1.0)


def test_ramps():
    o = Optimisation(schedule="ramps", learning_rate=2.0, ramp_up=0.25, ramp_down=0.2)
    assert o.compute_rates(0.0).learning_rate == pytest.approx(2 * 0.006737947)
    assert o.compute_rates(0.125).learning_rate == pytest.approx(2 * 0.286504797)
    assert o.compute_rates(0.25) == o.compute_rates(0.8) == Rates(2.0, 0.9, 1.0)
    assert o.compute_rates(0.9).learning_rate == pytest.approx(2 * 0.043936934)
    assert o.compute_rates(0.9).beta1 == pytest.approx(0.5 + 0.4 * 0.043936934)
    assert o.compute_rates(0.999999).beta1 == pytest.approx(0.5, abs=1e-4)


def test_cosine():
    o = Optimisation(schedule="cosine", learning_rate=2.0, cosine_end=1.25)
    assert o.compute_rates(0.0).learning_rate == 2.0
    assert o.compute_rates(0.625).learning_rate == pytest.approx(1.0)
    assert o.compute_rates(1.0).learning_rate == pytest.approx(1 - 0.809016994)
    assert {o.compute_rates(t).beta1 for t in (0, 0.5, 0.999)} == {0.9}


# The paper's numbers


@pytest.mark.parametrize(("of", "steps"), [("svhn", 60_000), ("cifar10", 150_000)])
@pytest.mark.parametrize("net", ["conv-large", "wrn-28-2"])
def test_ablation(of, steps, net):
    name = f"{of}-ablation" if net == "conv-large" else f"{of}-wide-resnet"
    for method in METHODS:
        whole = made(name, method)
        assert (whole.net.name(), whole.steps) == (net, steps)
        assert whole.labelled_batch + whole.unlabelled_batch == 100
        o = whole.optimisation
        assert (o.optimizer, o.learning_rate, o.schedule, o.beta1, o.beta1_end) == (
            "adam",
            5e-4,
            "linear-tail",
            0.9,
            0.5,
        )
        assert round(o.tail * whole.steps) == 20_000
        assert whole.progress_every == 1
        assert (whole.balanced, whole.preparation) == (of == "cifar10", Preparation())
    assert made(name).net == made(name, align="none").net
    if net == "conv-large":
        assert made(name).net.width == 1


@pytest.mark.parametrize(("of", "radius"), [("svhn", 3.5), ("cifar10", 8.0)])
def test_vat_without_alignment_is_trained_alike(of, radius):
    aligned, alone = made(f"{of}-ablation"), made(f"{of}-ablation", align="none")
    assert replace_align(aligned) == alone
    vat = alone.method[0]
    assert (vat.radius, vat.weight, vat.on, vat.iterations) == (radius, 1, "all", 1)
    assert alone.method[1].weight == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "name", [f"{of}-{kind}-cpu" for of in ("svhn", "cifar10") for kind in ("ablation", "wide-resnet")]
)
def test_the_pairs_of_the_short_ablation_differ_in_the_alignment_alone(name, method):
    assert replace_align(made(name, method)) == made(name, method, "none")


def replace_align(whole: Recipe) -> Recipe:
    return whole.model_copy(update={"align": None})


@pytest.mark.parametrize("of", ["svhn", "cifar10"])
@pytest.mark.parametrize("method", ["pi-model", "mean-teacher"])
def test_authors_training_without_alignment(of, method):
    alone, aligned = made(f"{of}-ablation", method, "none"), made(f"{of}-ablation", method)
    o = alone.optimisation
    assert (alone.steps, o.optimizer, o.schedule) == (150_000, "adam", "ramps")
    assert o.learning_rate in (1e-3, 3e-3, 5e-3)
    assert (round(o.ramp_up * alone.steps), round(o.ramp_down * alone.steps)) == (40_000, 25_000)
    assert alone.labelled_batch + alone.unlabelled_batch == 100
    for whole in (alone, aligned):
        (its,) = whole.method
        assert its.weight in (1, 5, 10, 50, 100)
        assert round(its.ramp * whole.steps) == 40_000
    assert (aligned.optimisation.schedule, aligned.optimisation.learning_rate) == ("linear-tail", 5e-4)


def test_svhn_headline():
    whole = made("svhn-headline")
    assert (whole.net.name(), whole.title) == ("conv-large", "vat+entropy-adversarial")
    assert (whole.steps, whole.labelled_batch, whole.unlabelled_batch) == (150_000, 32, 128)
    assert whole.optimisation.learning_rate == 5e-4


def test_cifar10_headline():
    whole = made("cifar10-headline", "mean-teacher")
    o = whole.optimisation
    assert (whole.net.name(), whole.net.heads) == ("shake-shake", 2)
    assert whole.labelled_batch + whole.unlabelled_batch == 512
    assert (o.optimizer, o.schedule, o.learning_rate, o.weight_decay) == ("sgd", "cosine", 0.2, 2e-4)
    assert whole.steps / whole.progress_every == 300


@pytest.mark.parametrize(
    ("shape", "radius"),
    [((1, 8, 8), 1.5), ((3, 8, 8), 1.5), ((1, 28, 28), 1.5), ((3, 32, 32), 2.5), ((3, 224, 224), 17.5), ((64,), 2.0)],
)
def test_the_radius_for_own_data_grows_with_the_root_of_their_size(shape, radius):
    images = Images(torch.zeros(4, *shape), torch.tensor([0, 1, 0, 1]))
    name = "own-images" if len(shape) == 3 else "own-vectors"
    vat = recipe(name, DataSet("mine", ("a", "b"), images), "vat+entropy").method[0]
    assert vat.norm(images.x) == pytest.approx(radius, rel=0.01)


@pytest.mark.parametrize("name", ["own-images", "own-vectors"])
def test_the_discriminator_for_own_data_follows_the_features(name):
    for align in ("adversarial", "reversal"):
        chosen = made(name, align=align).align
        assert (chosen.hidden, chosen.learning_rate) == ("auto", None if name == "own-images" else 3e-3)
    assert made(name, align="mmd").align.name() == "mmd"


def test_adversarial_alignment_is_the_papers():
    for name in {name for name in list_recipes() if not name.startswith("own-")} - {"digits-demo"}:
        align = made(name).align
        assert (align.form, align.hidden, align.weight, align.gamma) == ("minimax", 1024, 1, 10)


@pytest.mark.parametrize("name", [name for name, one in list_recipes().items() if one.short])
@pytest.mark.parametrize("method", METHODS)
def test_a_cpu_profile_changes_only_what_it_lists(name, method):
    for align in ("adversarial", "none"):
        whole = made(name.removesuffix("-cpu"), method, align).model_dump()
        short = made(name, method, align).model_dump()
        own = {f"with {name}" for name in method.split("+")}
        about = (s.rpartition(": ") for s in list_recipes()[name].named.cpu)
        plain = [setting for condition, _, setting in about if not condition or condition in own]
        listed = {s.partition("=")[0]: json.loads(s.partition("=")[2]) for s in plain}
        for path in set(list_paths(whole)) & set(listed):
            set_field(whole, path, listed[path])
        assert short == whole


def test_every_recipe_has_a_profile_for_short_machines_or_is_one():
    long = [name for name in list_recipes() if not name.endswith("-cpu") and made(name).steps > 20_000]
    assert {"svhn-ablation", "cifar10-ablation", "svhn-headline", "cifar10-headline"} <= set(long)
    assert all(made(f"{name}-cpu").steps <= 20_000 for name in long if f"{name}-cpu" in list_recipes())
    assert {f"{name}-cpu" for name in long if "wide-resnet" not in name} <= set(list_recipes())


def test_recipes_follow_the_data():
    data = data_for("svhn-ablation")
    other = replace(data, name="mine", preparation=Preparation(shift=1), balanced=True)
    whole = recipe("svhn-ablation", other)
    assert (whole.data, whole.preparation, whole.balanced) == ("mine", Preparation(shift=1), True)


def test_an_unknown_recipe():
    with pytest.raises(UserError, match="no recipe called 'digits-dmo'; did you mean 'digits-demo'"):
        recipe("digits-dmo", data_for("digits"))
