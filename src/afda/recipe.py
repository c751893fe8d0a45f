"""A Recipe: everything that decides the outcome of a run, and nothing about the machine it runs on."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from afda import ramps
from afda.align import Align
from afda.choices import Value, first_problem, names, pick
from afda.classifier import Net
from afda.data.images import DataSet, Preparation
from afda.data.split import Split, split
from afda.errors import UserError, in_short, unknown
from afda.methods import Method
from afda.strict_json import parsed

ANet = Annotated[SerializeAsAny[Net], BeforeValidator(lambda value: pick("nets", value))]
AMethod = Annotated[SerializeAsAny[Method], BeforeValidator(lambda value: pick("methods", value))]
AnAlign = Annotated[
    SerializeAsAny[Align] | None, BeforeValidator(lambda value: None if value == "none" else pick("align", value))
]


class Optimisation(Value):
    """How f, g and d are updated. Lengths are shares of the whole training."""

    optimizer: Literal["adam", "sgd"] = Field("adam", description="of f and g")
    learning_rate: float = Field(5e-4, gt=0, description="of f and g, at its largest; see optimisation.schedule")
    schedule: Literal["linear-tail", "ramps", "cosine"] = Field(
        "linear-tail", description="the alignment strategy's; Laine's and Tarvainen's; Shake-Shake's"
    )
    tail: float = Field(20 / 60, ge=0, le=1, description="linear-tail: the last part, in which the rate falls")
    stairs: int = Field(40, ge=1, description="linear-tail: in how many equal steps it falls")
    ramp_up: float = Field(40 / 150, ge=0, le=1, description="ramps: the part in which the rate rises")
    ramp_down: float = Field(25 / 150, ge=0, le=1, description="ramps: the part in which it falls")
    cosine_end: float = Field(350 / 300, gt=0, description="cosine: where the rate would reach zero")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's first moment, until the rate begins to fall")
    beta1_end: float = Field(
        0.5, ge=0, lt=1, description="Adam's first moment once the rate falls, or what it falls to"
    )
    beta2: float = Field(0.999, ge=0, lt=1, description="Adam's second moment")
    momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of SGD")
    weight_decay: float = Field(0.0, ge=0, description="of f and g")

    def rates(self, t: float) -> dict[str, float]:
        """The learning rate and beta1 at progress t."""
        if self.schedule == "cosine":
            factor, beta1 = ramps.cosine(t, self.cosine_end), self.beta1
        elif self.schedule == "ramps":
            down = ramps.ramp_down(t, self.ramp_down)
            factor = ramps.ramp_up(t, self.ramp_up) * down
            beta1 = down * self.beta1 + (1 - down) * self.beta1_end
        else:
            factor = ramps.linear_tail(t, self.tail, self.stairs)
            beta1 = self.beta1 if t < 1 - self.tail else self.beta1_end
        return {"learning_rate": factor * self.learning_rate, "beta1": beta1}


class Recipe(Value):
    """One experiment. Two runs of the same recipe on the same data are the same experiment."""

    data: str = Field(description="a data set's name, or the name of a user's own")
    labels: int | None = Field(None, ge=1, description="how many labels are kept; by default all there are")
    balanced: bool = Field(False, description="draw the labelled images evenly from the classes")
    validation: bool = Field(False, description="hold out a validation set as large as the labelled set, at most 1000")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="of the labelled set, the first weights and all noise")
    preparation: Preparation = Preparation()

    net: ANet = Field(description="the network")
    method: tuple[AMethod, ...] = Field(description="the methods whose terms are added up", min_length=1)
    align: AnAlign = Field(None, description="how features are aligned, if at all")

    steps: int = Field(ge=1, le=10**9, description="number of updates")
    labelled_batch: int = Field(16, ge=2, le=100_000, description="labelled images per update")
    unlabelled_batch: int = Field(84, ge=2, le=100_000, description="unlabelled images per update")
    optimisation: Optimisation = Optimisation()

    batchnorm: Literal["apart", "together"] = Field(
        "apart", description="normalise labelled and unlabelled images by statistics of their own, or of both"
    )
    statistics: Literal["labelled", "unlabelled", "both"] = Field(
        "labelled", description="whose clean passes move BatchNorm's running statistics, which evaluation uses"
    )
    order: Literal["rotated", "literal"] = Field(
        "rotated", description="d's update before that of f and g, on the same pass; or after it, on a pass of its own"
    )
    supervised_mean: Literal["labelled", "batch"] = Field(
        "labelled",
        description="divide the cross-entropy by the labelled images of an update, or by both kinds, "
        "also where the unlabelled ones do not pass",
    )
    progress_every: int = Field(
        1, ge=1, description="updates between changes of mu and eta; 500 makes the paper's epochs"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.statistics != "labelled" and not self.uses_unlabelled:
            raise ValueError("this method passes no unlabelled images, so statistics can only be 'labelled'")
        if self.batchnorm == "together" and self.uses_unlabelled and self.statistics != "both":
            raise ValueError("batchnorm 'together' passes both kinds of images at once, so statistics must be 'both'")
        own_adam = self.align is not None and self.align.own_optimizer
        if self.optimisation.optimizer == "sgd" and own_adam and getattr(self.align, "learning_rate", None) is None:
            raise ValueError(
                "the discriminator is trained by Adam, so with SGD it needs an align.learning_rate of its own"
            )
        if len({m.name() for m in self.method}) < len(self.method):
            raise ValueError("a method is named twice")
        return self

    @property
    def uses_unlabelled(self) -> bool:
        return self.align is not None or any(m.uses_unlabelled for m in self.method)

    @property
    def images_per_step(self) -> int:
        return self.labelled_batch + self.unlabelled_batch * self.uses_unlabelled

    @property
    def title(self) -> str:
        """A short name such as vat+entropy-adversarial."""
        methods = "+".join(m.name() for m in self.method)
        return f"{methods}-{self.align.name()}" if self.align else methods

    def split_of(self, data: DataSet) -> Split:
        """Which images of the data set are labelled, unlabelled and for validation."""
        return split(
            data.train.y,
            data.classes,
            labels=self.labels,
            seed=self.seed,
            balanced=self.balanced,
            validation=self.validation,
        )

    def progress(self, step: int) -> float:
        """t in [0, 1) at this update, for mu and eta."""
        return step // self.progress_every * self.progress_every / self.steps

    def to_json(self) -> str:
        # Not by pydantic, which refuses the name of a folder that is not in UTF-8.
        return json.dumps(self.model_dump(), indent=2) + "\n"

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Recipe":
        """A recipe from plain values, or a UserError in one sentence."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise UserError(f"The recipe is not valid: {first_problem(error)}.") from None

    @classmethod
    def read(cls, path: Path) -> "Recipe":
        try:
            fields = parsed(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"There is no recipe {path}; give the recipe.json of a run, or a name from afda list recipes."
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read as a recipe: {in_short(error)}.") from None
        if not isinstance(fields, dict):
            raise UserError(f"{path} is not a recipe: a JSON object is expected.")
        return cls.of(fields)

    def with_settings(self, settings: list[str]) -> "Recipe":
        """A changed recipe; each setting is `path=value`, such as steps=2000 or method.vat.radius=2.5."""
        fields = self.model_dump()
        for setting in settings:
            path, equals, text = setting.partition("=")
            if not equals:
                raise UserError(f"--set takes path=value, such as steps=2000, not {setting!r}.")
            try:
                value = parsed(text)
            except ValueError:
                value = text
            put(fields, path.strip(), value)
        return Recipe.of(fields)


def put(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set the field at a dotted path; an element of a list is found by its name."""
    *parents, last = path.split(".")
    place: Any = fields
    for part in parents:
        if isinstance(place, list | tuple):
            place = {element["name"]: element for element in place if isinstance(element, dict)}
        if not isinstance(place, dict) or part not in place:
            raise missing(fields, path)
        place = place[part]
    if not isinstance(place, dict) or last not in place:
        raise missing(fields, path)
    place[last] = whole(path, value) if isinstance(value, str) else value


def missing(fields: dict[str, Any], path: str) -> UserError:
    """What to say of a path that is not there."""
    place, _, rest = path.partition(".")
    part = rest.partition(".")[0]
    if place == "method" and part in set(names("methods")) - {method["name"] for method in fields["method"]}:
        return UserError(f"This recipe has no method {part}, so {path} cannot be set; add it with --method.")
    if place == "align" and rest and fields.get("align") is None:
        return UserError(f"This recipe has no alignment, so {path} cannot be set; choose one with --align.")
    return unknown("setting", path, paths(fields), "see afda list settings.")


def whole(path: str, name: str) -> Any:
    """What a name stands for, so that a later setting can be about a field of it."""
    if path == "method":
        return tuple(pick("methods", part).model_dump() for part in name.split("+"))
    if path in ("net", "align") and name != "none":
        return pick({"net": "nets", "align": "align"}[path], name).model_dump()
    return name


def paths(fields: Any, prefix: str = "") -> list[str]:
    """All dotted paths that `put` accepts."""
    if isinstance(fields, list | tuple):
        elements = [element for element in fields if isinstance(element, dict)]
        return [path for element in elements for path in paths(element, f"{prefix}{element['name']}.")]
    if not isinstance(fields, dict):
        return []
    found = []
    for key, value in fields.items():
        if key != "name":
            found += [prefix + key, *paths(value, f"{prefix}{key}.")]
    return found
