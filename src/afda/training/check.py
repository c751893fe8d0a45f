"""Inspect a data set before training: what it contains, what is wrong with it, and how long training will take."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from afda.data import load
from afda.data.cache import read_headers
from afda.data.copies import list_copies
from afda.data.decode import Header
from afda.data.files import TABLES, list_files
from afda.data.groups import GROUP_BY
from afda.data.images import DataSet, Images, SameImages
from afda.errors import UserError, unknown
from afda.machine.runtime import Runtime, select_runtime
from afda.recipe import Recipe
from afda.recipes import choose_default_recipe
from afda.recipes.candidates import list_candidates
from afda.registry import Value
from afda.training.baseline import make_baseline
from afda.training.budget import LONGEST_TRIAL, measure_step_seconds, start_trial
from afda.training.folds import FOLDS
from afda.training.pool_shares import estimate_pool_shares
from afda.training.request import AUTO, make_recipe

FEW_LABELS = 5
"""A class with fewer labels is reported."""
IMBALANCE = 10
"""A ratio of label counts above this is reported."""
NOT_CLASSES = ("no_label", "no label", "nolabel", "none", "unknown", "unsorted", "misc", "unlabeled images", "all")
MOST_NAMED = 5
"""Examples given in a sentence; all of them are in the JSON."""


class FileProblem(Value):
    """A file that is not used."""

    path: str
    reason: str


class ImageSizes(Value):
    """The sides of the image files, in pixels."""

    shortest_side: int
    longest_side: int
    median_shorter_side: float


class FileCheck(Value):
    """The image files of a folder or table, whether or not one can train on them."""

    files: int
    modes: dict[str, int]
    unreadable: tuple[FileProblem, ...]
    empty_classes: tuple[str, ...]
    sizes: ImageSizes | None = None


class ImageCounts(Value):
    """How many images there are of each kind."""

    labelled: int
    unlabelled: int
    validation: int
    test: int


class ClassCounts(Value):
    """How many images of each class there are, by kind."""

    labelled: dict[str, int]
    validation: dict[str, int]
    test: dict[str, int]


class TimeEstimate(Value):
    """The time that training takes on this machine, measured."""

    net: str
    steps: int
    seconds_per_1000_steps: float
    comparison_minutes: float
    """For comparing candidates before the training; 0 if there is only one."""
    minutes: float
    """For all of it."""


Duplicates = dict[str, list[list[str]]]
"""Names of identical images in groups, by where they occur; `contradicting` groups have different labels.

From a user's own data the copies were dropped, as the notes say; those within one of the held-out sets and within the
unlabelled images stay."""


class DataCheck(Value):
    """What was found in a data set that could be loaded."""

    name: str
    shape: tuple[int, ...]
    images: ImageCounts
    classes: ClassCounts
    unlabelled_shares: dict[str, float] | None
    """The estimated share of each class among the unlabelled images of a user's own data; None if it is not known."""
    notes: tuple[str, ...]
    skipped: tuple[FileProblem, ...]
    duplicates: Duplicates
    warnings: tuple[str, ...]
    expected: TimeEstimate | None
    """None if one cannot train on the data."""


class CheckResult(Value):
    """The findings of `afda check`."""

    data: DataCheck | None
    """None if the data could not be loaded."""
    files: FileCheck | None
    """None for data that are not a folder or table of files."""
    problem: str | None
    """Why one cannot train on these data, if so."""

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        files = None if self.files is None else to_plain(self.files)
        if files is not None and files["sizes"] is None:
            del files["sizes"]
        if self.data is None:
            return {"files": files, "problem": self.problem}
        found = to_plain(self.data)
        first = {
            key: found.pop(key)
            for key in ("name", "shape", "images", "classes", "unlabelled_shares", "notes", "skipped")
        }
        return {**first, "files": files, **found, "problem": self.problem}


def to_plain(value: Value) -> dict[str, Any]:
    """Return the fields as lists, dictionaries and scalars; names of files need not be valid UTF-8."""

    def convert(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: convert(inner) for key, inner in part.items()}
        return [convert(inner) for inner in part] if isinstance(part, list | tuple) else part

    return {key: convert(part) for key, part in value.model_dump().items()}


def check_data(
    data: str,
    *,
    labels: int | None = None,
    method: str | None = None,
    align: str | None = None,
    size: int | None = None,
    group_by: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    on_decode: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Inspect data as `train` would use them, and measure how long training will take.

    `on_decode` is called with the number of decoded files and of all files. Raises UserError for what is neither a data
    set nor a folder or table of files.
    """
    if group_by is not None and group_by not in GROUP_BY:
        raise unknown("grouping", group_by, GROUP_BY)
    files = check_files(data)
    try:
        loaded = load(data, side=size, group_by=group_by, progress=on_decode)
    except UserError as error:
        if files is None:
            raise
        return CheckResult(data=None, files=files, problem=str(error))
    runtime = select_runtime(device, precision, threads)
    default = choose_default_recipe(loaded, runtime.device.type)
    automatic = method == AUTO or (method is None and loaded.is_own)
    recipe = make_recipe(default, loaded, None if automatic else method, align, labels)
    problem = find_problem(recipe, loaded, automatic)
    copies = find_copies(loaded)
    known = int((loaded.train.y >= 0).sum())
    shares = None
    if loaded.is_own and not problem and (quick := estimate_pool_shares(loaded, recipe, runtime)) is not None:
        shares = quick.shares
    found = DataCheck(
        name=loaded.name,
        shape=loaded.train.shape,
        images=ImageCounts(
            labelled=known,
            unlabelled=len(loaded.train) - known,
            validation=0 if loaded.val is None else len(loaded.val),
            test=0 if loaded.test is None else len(loaded.test),
        ),
        classes=ClassCounts(
            labelled=count_classes(loaded, loaded.train),
            validation=count_classes(loaded, loaded.val),
            test=count_classes(loaded, loaded.test),
        ),
        unlabelled_shares=shares,
        notes=loaded.notes,
        skipped=tuple(FileProblem(path=path, reason=reason) for path, reason in loaded.skipped),
        duplicates=group_duplicates(copies),
        warnings=tuple(list_warnings(loaded, copies, files.empty_classes if files is not None else ())),
        expected=None if problem else estimate_time(recipe, loaded, runtime, automatic),
    )
    return CheckResult(data=found, files=files, problem=problem)


def check_files(name: str) -> FileCheck | None:
    """Inspect the image files of a folder or table; None for other data."""
    path = Path(os.path.expanduser(name))
    if not os.path.exists(path) or not (path.is_dir() or path.suffix.lower() in TABLES):
        return None
    files = list_files(path)
    known = read_headers(files.root, [entry.path for entry in files.entries])
    good = [header for header in known.values() if isinstance(header, Header)]
    unreadable = [*files.refused, *((p, reason) for p, reason in known.items() if isinstance(reason, str))]
    sides = [sorted((header.width, header.height)) for header in good]
    sizes = None
    if sides:
        sizes = ImageSizes(
            shortest_side=min(short for short, _ in sides),
            longest_side=max(long for _, long in sides),
            median_shorter_side=median(short for short, _ in sides),
        )
    return FileCheck(
        files=len(files.entries),
        modes=dict(Counter(header.mode for header in good).most_common()),
        unreadable=tuple(FileProblem(path=p, reason=reason) for p, reason in unreadable),
        empty_classes=tuple(files.empty_classes),
        sizes=sizes,
    )


def count_classes(data: DataSet, part: Images | None) -> dict[str, int]:
    """Return the number of images of each class."""
    numbers = Counter([] if part is None else part.y.tolist())
    return {name: numbers[k] for k, name in enumerate(data.classes)}


def find_copies(data: DataSet) -> tuple[SameImages, ...]:
    """Return images that are the same to the net; a user's own were found, and dropped, when they were loaded."""
    return data.copies if data.is_own else list_copies(data)


def group_duplicates(copies: Iterable[SameImages]) -> Duplicates:
    """Return the names of identical images, by the kinds in which they occur."""
    found: Duplicates = defaultdict(list)
    for same in copies:
        found[" and ".join(same.kinds) if len(same.kinds) > 1 else f"within {same.kinds[0]}"].append(list(same.names))
        if same.contradicting:
            found["contradicting"].append(list(same.names))
    return dict(found)


def find_similar_names(classes: tuple[str, ...]) -> list[list[str]]:
    """Return names of classes that differ in case or blanks only, such as `Cat` and `cat `."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        groups[" ".join(name.casefold().split())].append(name)
    return [names for names in groups.values() if len(names) > 1]


def list_warnings(data: DataSet, copies: tuple[SameImages, ...], empty_classes: tuple[str, ...]) -> list[str]:
    """Return what is wrong, one sentence each, the worst first; notes of the data tell of copies that were dropped."""
    used = group_duplicates(same for same in copies if not same.dropped)
    # Of copies with different labels the training images are dropped, but the label of the other may be the wrong one.
    doubtful = group_duplicates(same for same in copies if same.dropped and same.contradicting and same.kept is None)
    if doubtful:
        used["contradicting"] = [*used.get("contradicting", []), *doubtful["contradicting"]]
    found = [*data.warnings, *(describe_duplicates(kind, groups) for kind, groups in sort_duplicates(used))]
    for names in find_similar_names(data.classes):
        found.append(f"the classes {' and '.join(map(repr, names))} have similar names; is one of them a typing error?")
    for name in data.classes:
        if name.casefold().strip(" _-") in NOT_CLASSES:
            found.append(f"{name!r} is taken for a class; rename its folder to 'unlabeled' if it holds no class.")
    if empty_classes:
        found.append(f"folders without images are not classes: {join_names(empty_classes)}.")
    counts = Counter(data.train.y[data.train.y >= 0].tolist())
    few = [data.classes[k] for k, n in sorted(counts.items()) if n < FEW_LABELS]
    if few:
        subject = f"{len(few)} class has" if len(few) == 1 else f"{len(few)} classes have"
        found.append(f"{subject} fewer than {FEW_LABELS} labels ({join_names(few)}); label more images of them first.")
    most, least = max(counts, key=lambda k: counts[k]), min(counts, key=lambda k: counts[k])
    if counts[most] > IMBALANCE * counts[least]:
        found.append(
            f"{data.classes[most]!r} has {counts[most] / counts[least]:.0f} times as many labels as "
            f"{data.classes[least]!r}; compare the errors per class, not only the overall error."
        )
    return found


def sort_duplicates(duplicates: Duplicates) -> list[tuple[str, list[list[str]]]]:
    """Return the groups of duplicates, those with test images first."""
    return sorted(duplicates.items(), key=lambda item: ("test" not in item[0], item[0]))


def describe_duplicates(kind: str, groups: list[list[str]]) -> str:
    """Return a sentence about duplicates of one kind, such as `test and unlabelled`."""
    count, example = len(groups), " = ".join(groups[0][:3])
    plural = "" if count == 1 else "s"
    occur = f"occur{'s' if count == 1 else ''}"
    kinds = kind.split(" and ")
    if kind == "contradicting":
        return f"{count} image{plural} {occur} more than once with different labels, such as {example}."
    if "test" in kinds and len(kinds) > 1 and kinds != ["test", "validation"]:
        others = " and the ".join(other for other in kinds if other != "test")
        training = f"{others} images" if "validation" in kinds else f"{others} training images"
        return f"{count} test image{plural} also {occur} among the {training}, so the test error is optimistic."
    if len(kinds) > 1:
        return f"{count} image{plural} {occur} among the {' and the '.join(kinds)} images, such as {example}."
    kind = kind.removeprefix("within ")
    return f"{count} image{plural} {occur} more than once among the {kind} images, such as {example}."


def join_names(names: list[str] | tuple[str, ...]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more


def estimate_time(recipe: Recipe, data: DataSet, runtime: Runtime, automatic: bool = False) -> TimeEstimate:
    """Measure how long training takes on this machine, with the comparison of candidates before it."""
    candidates = [make_baseline(recipe), recipe]
    if automatic:
        candidates = [one for _, _, one in list_candidates(data, recipe.labels)]
        measurable = [one for one in candidates if one.shares_by != "given"]  # those that lack no shares
        recipe = max(measurable, key=lambda one: (one.images_per_step, len(one.objectives)))
    per_step = measure_step_seconds(start_trial(recipe, data, runtime))
    final = recipe.steps * per_step
    trials = 0.0
    if automatic or (data.is_own and recipe.uses_unlabelled):
        images = sum(one.images_per_step for one in candidates) / recipe.images_per_step
        is_vectors = len(data.train.shape) == 1  # all trials are completed; with images they have a limit
        trials = FOLDS * LONGEST_TRIAL["vectors"] * images * final if is_vectors else max(60.0, final)
    return TimeEstimate(
        net=recipe.net.name(),
        steps=recipe.steps,
        seconds_per_1000_steps=round(1000 * per_step, 1),
        comparison_minutes=round(trials / 60, 1),
        minutes=round((final + trials) / 60, 1),
    )


def find_problem(recipe: Recipe, data: DataSet, automatic: bool = False) -> str | None:
    """Return why one cannot train on these data, if so; the automatic choice needs no unlabelled images."""
    try:
        split = recipe.split_of(data)
    except UserError as error:
        return str(error)
    if automatic or len(split.unlabelled) or not recipe.uses_unlabelled:
        return None
    return "There are no unlabelled images to learn from; add some, or train with --method supervised --align none."
