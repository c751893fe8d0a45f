"""The content of the report: everything that the page shows, as typed values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afda import __version__
from afda.machine.runtime import Runtime
from afda.registry import Metric
from afda.report.command import format_train_command
from afda.report.curves import (
    Curve,
    describe_names,
    list_declared_metrics,
    read_bound_curves,
    read_curves,
    read_warnings,
)
from afda.report.discriminator import DiscriminatorState, assess_discriminator
from afda.report.embedding import Embedding, FeatureSample, embed_images, sample_features
from afda.report.evaluation import (
    CalibrationPanel,
    ClassError,
    Mistakes,
    assess_calibration,
    count_changed_predictions,
    list_class_errors,
    list_mistakes,
)
from afda.report.groups import Group, compare_with_baseline, find_baseline, group_runs, read_results
from afda.report.labelling import LabelSuggestions, suggest_labels
from afda.report.load_runs import LoadedRun, load_runs
from afda.report.pictures import PictureCollector, SpriteSheet
from afda.report.selection import SelectionPanel, describe_selection
from afda.report.shares import SharesPanel, compare_shares
from afda.runs.schemas import Part
from afda.runs.statistics import Interval, wilson_interval
from afda.runs.verdict import Comparison, describe_error

ERROR_METRICS: dict[Part, str] = {
    "test": "test_error",
    "validation": "val_error",
    "cross-validation": "cross_validated_error",
}


@dataclass(frozen=True)
class MetricText:
    """A metric's declaration, as the page shows it."""

    label: str
    description: str
    unit: str
    direction: str
    term: bool
    """Whether it is a term of the loss."""


@dataclass(frozen=True)
class RunReport:
    """What the page shows of one run."""

    name: str
    method: str
    data: str
    supervised_only: bool
    part: Part | None
    images: int
    wrong: int
    error: float | None
    error_metric: str | None
    """The name of the metric that the error is."""
    interval: Interval | None
    verdict: list[str]
    baseline: int | None
    """The position of its supervised-only baseline among the runs."""
    comparison: Comparison | None
    selection: SelectionPanel | None
    classes: list[str]
    class_errors: list[ClassError]
    confusion: list[list[int]]
    results: dict[str, float]
    """The metrics of its result, by name."""
    bound: dict[str, float] | None
    labels: int
    unlabelled: int
    outlier_share: float | None
    """The estimated share of unlabelled images that are unlike the labelled ones, if that was estimated."""
    seed: int
    steps: int
    seconds: float
    images_per_second: float
    curves: dict[str, Curve]
    """Every number in its log, by the name of the metric."""
    bound_curves: dict[str, Curve]
    warnings: list[str]
    discriminator: DiscriminatorState | None
    embedding: Embedding | None
    shares: SharesPanel | None
    mistakes: Mistakes | None
    calibration: CalibrationPanel | None
    missing: list[str]
    recipe: dict[str, Any]
    environment: dict[str, Any]
    command: str


@dataclass(frozen=True)
class Report:
    """Everything that the page shows."""

    title: str
    summary: list[str]
    """The verdict for a browser that runs no scripts."""
    version: str
    lead: int
    """The position of the run that is shown first."""
    runs: list[RunReport]
    groups: list[Group]
    metrics: dict[str, MetricText]
    """The declarations of all metrics in curves and results, in the order in which they are shown."""
    label_next: LabelSuggestions | None
    sheets: list[SpriteSheet]


def collect_report(
    paths: Sequence[Path],
    runtime: Runtime,
    progress: Callable[[str], None] = lambda _: None,
    table: str = "report-label-next.csv",
) -> Report:
    """Collect the content of a report about these runs and the baselines inside their directories.

    What is missing, such as data that have changed, is left out and named in the report. `table` is the name of the
    file with the images to label next.
    """
    runs = load_runs(paths, runtime, progress)
    names = number_duplicates([run.name for run in runs])
    declared = {name: metric for run in runs for name, metric in list_declared_metrics(run.recipe).items()}
    groups = group_runs(runs, names, declared)
    lead = next((i for i, run in enumerate(runs) if not run.supervised_only), 0)
    embedded = {group.runs[0] for group in groups} | {lead}
    pictures = PictureCollector()
    reports, label_next = [], None
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        sample = sample_features(run, runtime) if i in embedded else None
        if sample is not None:
            progress(f"embedding the features of {name}")
        reports.append(collect_run(i, name, runs, groups, declared, sample, pictures))
        if i == lead and sample is not None:
            label_next = suggest_labels(sample, run, pictures, table)
    progress("writing pictures")
    return Report(
        title=f"{runs[lead].recipe.data}: " + (names[0] if len(runs) == 1 else f"{len(runs)} runs"),
        summary=summarise(reports[lead]),
        version=__version__,
        lead=lead,
        runs=reports,
        groups=groups,
        metrics=describe_all_metrics(reports, declared),
        label_next=label_next,
        sheets=pictures.make_sheets(),
    )


def summarise(run: RunReport) -> list[str]:
    """Return the error of a run in words, and whether the unlabelled images helped."""
    judgement = run.selection.judgement if run.selection is not None else None
    judged = [judgement.sentence] if judgement is not None else []
    return [*run.verdict, *judged, *(run.comparison.sentences if run.comparison is not None else [])]


def collect_run(
    number: int,
    name: str,
    runs: Sequence[LoadedRun],
    groups: Sequence[Group],
    declared: dict[str, Metric],
    sample: FeatureSample | None,
    pictures: PictureCollector,
) -> RunReport:
    """Collect what the page shows of one run."""
    run = runs[number]
    result, scores = run.result, run.scores
    images, wrong = (scores.images, scores.wrong) if scores is not None else (0, 0)
    baseline = find_baseline(run, runs)
    embedding = embed_images(sample, run, pictures) if sample is not None else None
    classes = list(scores.class_errors) if scores is not None else list(run.data.classes if run.data else ())
    return RunReport(
        name=name,
        method=run.method,
        data=run.recipe.data,
        supervised_only=run.supervised_only,
        part=result.part,
        images=images,
        wrong=wrong,
        error=scores.error if scores is not None else None,
        error_metric=ERROR_METRICS[result.part] if result.part is not None else None,
        interval=wilson_interval(wrong, images),
        verdict=describe_error(result),
        baseline=baseline,
        comparison=compare_with_baseline(number, baseline, runs, groups),
        selection=describe_selection(run),
        classes=classes,
        class_errors=list_class_errors(scores),
        confusion=scores.confusion if scores is not None else [],
        results=read_results(run, declared),
        bound=result.bound,
        labels=result.labels,
        unlabelled=result.unlabelled,
        outlier_share=result.outlier_share,
        seed=run.recipe.seed,
        steps=run.recipe.steps,
        seconds=result.seconds,
        images_per_second=result.images_per_second,
        curves=read_curves(run.log, result.test_curve),
        bound_curves=read_bound_curves(run.log),
        warnings=read_warnings(run.log),
        discriminator=assess_discriminator(run.log, run.recipe),
        embedding=embedding,
        shares=compare_shares(sample, run) if sample is not None else None,
        mistakes=list_mistakes(run, pictures),
        calibration=assess_calibration(run),
        missing=list_missing(run, too_few=sample is not None and embedding is None),
        recipe=run.recipe.model_dump(mode="json"),
        environment=run.environment.to_dict(),
        command=format_train_command(run),
    )


def list_missing(run: LoadedRun, *, too_few: bool) -> list[str]:
    """Return what the page lacks about a run, in one sentence each."""
    missing = list(run.problems)
    if too_few:
        missing.append("There is no embedding: the features of too few images differ.")
    if changed := count_changed_predictions(run):
        missing.append(f"On this machine at least {changed} predictions differ from those that were recorded.")
    return missing


def describe_all_metrics(reports: Sequence[RunReport], declared: dict[str, Metric]) -> dict[str, MetricText]:
    """Return the declarations of all metrics that the runs have, loss terms first."""
    names = [name for report in reports for values in (report.results, report.curves) for name in values]
    return {
        name: MetricText(metric.label, metric.description, metric.unit, metric.direction, metric.term)
        for name, metric in describe_names(names, declared).items()
    }


def number_duplicates(names: Sequence[str]) -> list[str]:
    """Return the names, with a number after those that occur more than once."""
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]
