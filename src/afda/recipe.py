"""A recipe: everything that determines the result of a run, and nothing about the machine that it runs on."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from afda.align import Align
from afda.data.images import DataSet, Preparation
from afda.data.shares import Estimator
from afda.data.split import Split, split
from afda.errors import UserError, describe, unknown
from afda.machine.strict_json import parse_json
from afda.methods import Method, Objective
from afda.nets import Net
from afda.registry import Value, create, describe_invalid, list_names
from afda.schedules import Optimisation

ANet = Annotated[SerializeAsAny[Net], BeforeValidator(lambda value: create("nets", value))]
AMethod = Annotated[SerializeAsAny[Method], BeforeValidator(lambda value: create("methods", value))]
AnAlign = Annotated[
    SerializeAsAny[Align] | None, BeforeValidator(lambda value: None if value == "none" else create("align", value))
]


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
    sampling: Literal["natural", "balanced"] = Field(
        "natural", description="draw the labelled images of a batch as they come, or evenly from the classes"
    )
    logit_adjustment: float = Field(
        0.0,
        ge=0,
        le=100,
        description="tau: the cross-entropy adds tau * log(share of the class among the labels) to the logits, so that "
        "rare classes are not predicted too rarely (Menon et al., 2021, use 1); 0 is off",
    )
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
    shares_by: Estimator = Field(
        "mean",
        description="how class shares of the unlabelled images are estimated, where they are used: mean prediction, "
        "expectation maximisation, black-box shift estimation; or pool_shares are given",
    )
    pool_shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = Field(
        None, description="class shares of the unlabelled images, in the order of the classes, for shares_by=given"
    )
    outliers: Literal["keep", "down-weight"] = Field(
        "keep",
        description="draw all unlabelled images alike; or those that are unlike the labelled ones less often, if there "
        "seem to be any, by nets that are trained on the labels alone first",
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
        if self.sampling == "balanced" and self.logit_adjustment:
            raise ValueError(
                "sampling 'balanced' evens out the class shares that logit_adjustment corrects for; use one"
            )
        own_adam = self.align is not None and self.align.own_optimizer
        if self.optimisation.optimizer == "sgd" and own_adam and getattr(self.align, "learning_rate", None) is None:
            raise ValueError(
                "the discriminator is trained by Adam, so with SGD it needs an align.learning_rate of its own"
            )
        if self.pool_shares is not None and sum(self.pool_shares) <= 0:
            raise ValueError("pool_shares must not all be zero")
        parts = [part.name() for part in (*self.method, self.align) if part is not None]
        if len(set(parts)) < len(parts):
            raise ValueError("a method is named twice, or as the alignment is")
        return self

    @property
    def objectives(self) -> list[Objective]:
        """The methods, then the alignment if there is one."""
        return [*self.method, *([] if self.align is None else [self.align])]

    @property
    def uses_unlabelled(self) -> bool:
        return self.align is not None or any(m.uses_unlabelled for m in self.method)

    @property
    def uses_shares(self) -> bool:
        """Whether class shares of the unlabelled images are estimated."""
        return any(part.uses_shares for part in self.objectives)

    @property
    def images_per_step(self) -> int:
        return self.labelled_batch + self.unlabelled_batch * self.uses_unlabelled

    @property
    def title(self) -> str:
        """A short name such as vat+entropy-adversarial."""
        methods = "+".join(m.name() for m in self.method)
        return f"{methods}-{self.align.name()}" if self.align else methods

    def split_of(self, data: DataSet) -> Split:
        """Return which images of the data set are labelled, unlabelled and for validation."""
        return split(
            data.train.y,
            data.classes,
            labels=self.labels,
            seed=self.seed,
            balanced=self.balanced,
            validation=self.validation,
        )

    def to_json(self) -> str:
        # Not by pydantic, which refuses the name of a folder that is not in UTF-8.
        return json.dumps(self.model_dump(), indent=2) + "\n"

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Recipe":
        """Return a recipe from plain values, or raise a UserError."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise UserError(f"The recipe is not valid: {describe_invalid(error)}.") from None

    @classmethod
    def read(cls, path: Path) -> "Recipe":
        try:
            fields = parse_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"There is no recipe {path}; give the recipe.json of a run, or a name from afda list recipes."
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read as a recipe: {describe(error)}.") from None
        if not isinstance(fields, dict):
            raise UserError(f"{path} is not a recipe: a JSON object is expected.")
        return cls.of(fields)

    def with_settings(self, settings: list[str]) -> "Recipe":
        """Return a changed recipe; each setting is `path=value`, such as steps=2000 or method.vat.radius=2.5."""
        fields = self.model_dump()
        for setting in settings:
            path, equals, text = setting.partition("=")
            if not equals:
                raise UserError(f"--set takes path=value, such as steps=2000, not {setting!r}.")
            try:
                value = parse_json(text)
            except ValueError:
                value = text
            set_field(fields, path.strip(), value)
        return Recipe.of(fields)


def set_field(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set the field at a dotted path; an element of a list is found by its name."""
    *parents, last = path.split(".")
    place: Any = fields
    for part in parents:
        if isinstance(place, list | tuple):
            place = {element["name"]: element for element in place if isinstance(element, dict)}
        if not isinstance(place, dict) or part not in place:
            raise explain_missing(fields, path)
        place = place[part]
    if not isinstance(place, dict) or last not in place:
        raise explain_missing(fields, path)
    place[last] = expand_name(path, value) if isinstance(value, str) else value


def explain_missing(fields: dict[str, Any], path: str) -> UserError:
    """Return the error for a path that does not exist."""
    place, _, rest = path.partition(".")
    part = rest.partition(".")[0]
    if place == "method" and part in set(list_names("methods")) - {method["name"] for method in fields["method"]}:
        return UserError(f"This recipe has no method {part}, so {path} cannot be set; add it with --method.")
    if place == "align" and rest and fields.get("align") is None:
        return UserError(f"This recipe has no alignment, so {path} cannot be set; choose one with --align.")
    return unknown("setting", path, list_paths(fields), "see afda list settings.")


def expand_name(path: str, name: str) -> Any:
    """Return the fields that a plug-in's name stands for, so that a later setting can change one of them."""
    if path == "method":
        return tuple(create("methods", part).model_dump() for part in name.split("+"))
    if path in ("net", "align") and name != "none":
        return create({"net": "nets", "align": "align"}[path], name).model_dump()
    return name


def list_paths(fields: Any, prefix: str = "") -> list[str]:
    """Return all dotted paths that `set_field` accepts."""
    if isinstance(fields, list | tuple):
        elements = [element for element in fields if isinstance(element, dict)]
        return [path for element in elements for path in list_paths(element, f"{prefix}{element['name']}.")]
    if not isinstance(fields, dict):
        return []
    found = []
    for key, value in fields.items():
        if key != "name":
            found += [prefix + key, *list_paths(value, f"{prefix}{key}.")]
    return found
