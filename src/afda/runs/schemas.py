"""Schemas of a run's files, validated when they are read."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, le=10**12)]
Percent = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Part = Literal["test", "validation", "cross-validation"]
"""The images that an error is measured on; in cross-validation, labelled images by trainings without their labels."""
MOST_VALUES = 4 * 100_000_000
"""The most numbers in one image or vector; a file can claim any shape."""


class RunFile(BaseModel):
    """The fields that the library relies on, in the order of the file; a file may have others."""

    model_config = ConfigDict(strict=True, extra="allow")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the JSON file: the fields that were set, and those that the schema does not know."""
        return self.model_dump(exclude_unset=True)


def check_shape(shape: list[int]) -> list[int]:
    """Refuse a shape that is neither `(c, h, w)` with 1, 3 or 4 channels nor `(d,)`, or that is too large."""
    if len(shape) not in (1, 3) or (len(shape) == 3 and shape[0] not in (1, 3, 4)) or math.prod(shape) > MOST_VALUES:
        raise ValueError("it has an impossible shape")
    return shape


class Environment(RunFile):
    """`environment.json`: the machine, the versions, the data and the options of a run."""

    device: str = ""
    device_name: str = ""
    precision: str = ""
    emulated: bool = False
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    processes: Count = 0
    python: str = ""
    torch: str = ""
    platform: str = ""
    source: str = ""
    """The name of the data set, or the path of a user's own."""
    shape: list[Annotated[int, Field(ge=1)]] | None = None
    """`(c, h, w)` of images, or `(d,)` of vectors."""
    more_labels: list[str] | None = None
    group_by: Literal["folder"] | None = None
    load_rules: Literal[1, 2] = 1
    """See `afda.data.hold_out.LOAD_RULES`; version 0.1 did not record them."""
    afda: str = ""
    data: dict[str, str] | None = None
    """The checksums of the data's files by name."""
    notes: list[str] = []
    no_test: bool = False
    snapshots: bool = False
    baseline: bool | None = None

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.shape:
            check_shape(self.shape)
        return self

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one input, or None in a run that does not record it."""
        return tuple(self.shape) if self.shape else None


class SplitIndices(RunFile):
    """`split.json`: indices into the training images; all others are unlabelled."""

    labelled: list[Count]
    validation: list[Count]


class Scores(RunFile):
    """The error of a classifier in percent, overall and per class, its confusion matrix and its mistakes.

    A class without images has the error None. Rows of the matrix are true classes, columns predicted ones.
    """

    error: Percent
    class_errors: dict[str, Percent | None]
    confusion: list[list[Count]]
    misclassified: list[Count] | None = None
    """Indices of the misclassified images; version 0.1 did not record them."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        n = len(self.class_errors)
        if [len(row) for row in self.confusion] != [n] * n or not any(map(any, self.confusion)):
            raise ValueError("the confusion matrix does not fit the classes")
        return self

    @property
    def images(self) -> int:
        """The number of images that were scored."""
        return sum(map(sum, self.confusion))

    @property
    def wrong(self) -> int:
        """The number of misclassified images."""
        return self.images - sum(row[k] for k, row in enumerate(self.confusion))

    @property
    def balanced_error(self) -> float:
        """The mean of the class errors in percent, without classes that have no images."""
        errors = [100 * (1 - row[k] / n) for k, row in enumerate(self.confusion) if (n := sum(row))]
        return sum(errors) / len(errors)


class Result(RunFile):
    """`result.json`: the errors, the alignment and the speed of a finished run."""

    test_error: Percent | None
    val_error: Percent | None
    labelled_error: float | None = None
    balanced_error: Percent | None = None
    """The mean of the class errors on the images of `part`; computed where a file of an earlier version lacks it."""
    mmd2: float | None
    bound: dict[str, float] | None = None
    """The terms of Theorem 1, if the labels of all unlabelled images are known."""
    labels: Count
    unlabelled: Count
    seed: int | None = None
    steps: int | None = None
    temperature: float = 1.0
    test: Scores | None = None
    validation: Scores | None = None
    cross_validation: Scores | None = None
    """The scores of shorter trainings, each on labelled images whose labels it did not have."""
    seconds: Annotated[float, Field(ge=0)]
    images_per_second: Annotated[float, Field(ge=0)]
    outlier_share: Share | None = None
    """The estimated share of unlabelled images that are unlike the labelled ones; None if it was not estimated."""
    estimated_shares: dict[str, Share] | None = None
    """The estimated share of each class among the unlabelled images."""
    share_shift: Share | None = None
    """The share of unlabelled images that would have to change class to have the class shares of the labels."""
    test_curve: dict[Annotated[str, Field(pattern="^[0-9]{1,18}$")], Percent] | None = None
    """The test error after each step that has a snapshot."""

    @model_validator(mode="after")
    def _compute_balanced_error(self) -> Self:
        if self.balanced_error is None and self.scores is not None:
            # Not as a field that was set: a file is written back as it was read.
            self.__dict__["balanced_error"] = self.scores.balanced_error
        return self

    @property
    def part(self) -> Part | None:
        """The images that the error is measured on: test images, else validation images, else labelled ones in turn."""
        if self.test or self.validation:
            return "test" if self.test else "validation"
        return "cross-validation" if self.cross_validation else None

    @property
    def cross_validated_error(self) -> float | None:
        """The error of the cross-validation in percent."""
        return None if self.cross_validation is None else self.cross_validation.error

    @property
    def scores(self) -> Scores | None:
        """The scores on the images of `part`."""
        return self.test or self.validation or self.cross_validation


class ModelCard(RunFile):
    """`model.json`: what is needed besides the tensors to predict with a model."""

    format: int = 1
    classes: Annotated[list[str], Field(min_length=2)]
    shape: list[Annotated[int, Field(ge=1)]]
    net: dict[str, Any]
    normalise: str = ""
    clip: Annotated[float, Field(gt=0)] | None = None
    """The most standard deviations that an input of a vector may be away from its mean."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    sha256: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_shape(self.shape)
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two classes have the same name")
        return self
