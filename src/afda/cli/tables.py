"""The results of commands as tables and sentences on standard output."""

from collections.abc import Iterator

from rich.table import Table

from afda.cli import console
from afda.runs.evaluate import Evaluation
from afda.runs.pool import describe_shift
from afda.runs.predict import PredictionSummary
from afda.runs.schemas import Result, Scores
from afda.runs.selection import Selection
from afda.runs.statistics import wilson_interval
from afda.training.check import CheckResult, DataCheck, FileCheck, TimeEstimate
from afda.training.metrics import BALANCED_ERROR
from afda.training.session import TrainOutcome

MOST_CLASSES = 30
"""Classes listed on the screen; all of them are in the JSON."""


def format_percent(value: float | None) -> str:
    """Return an error in percent, or `none`."""
    return "none" if value is None else f"{value:.2f} %"


def format_error(error: float | None, scores: Scores | None) -> str:
    """Return an error, the number of images that it was measured on, and its confidence interval."""
    if error is None or scores is None:
        return format_percent(error)
    low, high = wilson_interval(scores.wrong, scores.images) or (0.0, 100.0)
    counts = f"{scores.wrong} of {scores.images} (95 % interval {low:.1f} to {high:.1f} %)"
    return f"{format_percent(error)}: {counts}"


def format_cross_validation(scores: Scores | None) -> str:
    """Return the error of trainings without some of the labels, on the images that lacked them."""
    return format_error(None if scores is None else scores.error, scores)


def format_bound(bound: dict[str, float]) -> str:
    """Return the risk gap and its bound of Theorem 1."""
    return f"{bound['gap']:.3f} ≤ {bound['total']:.3f} + {bound['remainder']:.3f}"


def has_outliers(result: Result) -> bool:
    """Return whether more than a hundredth of the unlabelled images seem to be unlike the labelled ones."""
    return result.outlier_share is not None and result.outlier_share > 0.01


def format_outliers(result: Result) -> str:
    """Return the estimated share of outliers among the unlabelled images."""
    return f"about {100 * (result.outlier_share or 0):.0f} % of the unlabelled ones, see unlike.csv"


def build_result_table(result: Result, title: str) -> Table:
    """Return the result of one run as a table."""
    table = Table(title=title, title_justify="left", show_header=False)
    cross_validated = result.cross_validation is not None
    rows = {
        "test error": format_error(result.test_error, result.test),
        "validation error": format_error(result.val_error, result.validation),
        **({"cross-validated error": format_cross_validation(result.cross_validation)} if cross_validated else {}),
        BALANCED_ERROR.label: format_percent(result.balanced_error),
        "MMD² of the features": "none" if result.mmd2 is None else f"{1000 * result.mmd2:.2f} × 10⁻³",
        **({"risk gap, bound": format_bound(result.bound)} if result.bound else {}),
        "labels, unlabelled": f"{result.labels}, {result.unlabelled}",
        **({"unlike the labelled images": format_outliers(result)} if has_outliers(result) else {}),
        "time": f"{result.seconds:.0f} s, {result.images_per_second:.0f} images/s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def build_selection_table(selection: Selection) -> Table:
    """Return the candidates with their cross-validated errors as a table."""
    table = Table(title="Cross-validation on the labels", title_justify="left")
    for column in ("candidate", "what it is", "error %", "95 % interval", "trainings"):
        table.add_column(column, justify="left" if column in ("candidate", "what it is") else "right")
    for candidate in selection.candidates:
        estimate = selection.estimate(candidate)
        error, interval = "", ""
        if estimate is not None:
            low, high = estimate.interval
            error, interval = f"{estimate.error:.1f}", f"{low:.1f} to {high:.1f}"
        name = f"{candidate.name} (chosen)" if candidate.name == selection.chosen else candidate.name
        table.add_row(name, candidate.summary, error, interval, str(len(candidate.trials)))
    return table


def print_outcome(outcome: TrainOutcome) -> None:
    """Print the outcome of a training."""
    if outcome.selection is not None:
        console.out.print(build_selection_table(outcome.selection))
        console.print_result(f"{outcome.selection.chosen} was taken: {outcome.selection.reason}.")
    console.out.print(build_result_table(outcome.result, f"{outcome.recipe.data}, {outcome.recipe.title}"))
    if outcome.verdict is not None:
        console.print_result(outcome.verdict)
    if (note := describe_shift(outcome.result)) is not None:
        console.print_result(f"Note: {note}")
    state = "was already finished and is" if outcome.was_finished else "is"
    console.print_result(f"The run {state} in {outcome.path}.")


def print_check(result: CheckResult) -> None:
    """Print the findings about a data set."""
    if result.files is not None:
        console.print_result(describe_files(result.files))
    if result.data is None:
        return
    data = result.data
    console.out.print(build_class_table(data))
    for note in data.notes:
        console.print_result(f"Note: {note}")
    for warning in data.warnings:
        console.print_result(f"Warning: {warning}")
    if not (data.warnings or result.problem or data.skipped or data.duplicates):
        console.print_result("No problems found.")
    if data.expected is not None:
        console.print_result(describe_estimate(data.expected))


def describe_files(files: FileCheck) -> str:
    """Return a sentence about the image files of a folder or table."""
    modes = ", ".join(f"{count} {mode}" for mode, count in files.modes.items())
    text = f"{files.files} image files" + (f" ({modes})" if modes else "")
    if files.sizes is not None:
        text += f", sides from {files.sizes.shortest_side} to {files.sizes.longest_side} pixels"
    return f"{text}; {len(files.unreadable)} cannot be read."


def build_class_table(data: DataCheck) -> Table:
    """Return the numbers of images of each class as a table."""
    images = data.images
    kinds = f"{images.labelled} labelled, {images.unlabelled} unlabelled, {images.validation} validation"
    table = Table(title=f"{data.name}: {kinds}, {images.test} test", title_justify="left")
    shares = data.unlabelled_shares
    estimate = [] if shares is None else ["unlabelled (estimate)"]
    for column in ("class", "labelled", *estimate, "validation", "test"):
        table.add_column(column, justify="left" if column == "class" else "right")
    names = list(data.classes.labelled)
    counts = data.classes
    for name in names[:MOST_CLASSES]:
        share = [] if shares is None else [f"{100 * shares[name]:.0f} %"]
        table.add_row(name, str(counts.labelled[name]), *share, str(counts.validation[name]), str(counts.test[name]))
    if len(names) > MOST_CLASSES:
        table.add_row(f"and {len(names) - MOST_CLASSES} more")
    return table


def describe_estimate(expected: TimeEstimate) -> str:
    """Return a sentence about the time that training takes."""
    minutes = max(1, round(expected.minutes))
    pace = f"1,000 updates of {expected.net} take {expected.seconds_per_1000_steps:.0f} s on this machine"
    whole = f"{expected.steps:,} updates" + (" and the comparison of methods" if expected.comparison_minutes else "")
    return (
        f"{pace}. The default, {whole}, takes about {minutes} minute{'s' if minutes > 1 else ''}; "
        "use --minutes to train for a given time."
    )


def build_evaluation_table(evaluation: Evaluation) -> Table:
    """Return the errors of a model on labelled images, overall and per class, as a table."""
    scores = evaluation.scores
    title = f"{evaluation.run} on {scores.images} images of {evaluation.data}"
    table = Table(title=title, title_justify="left")
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("error", justify="right")
    for (name, error), row in zip(scores.class_errors.items(), scores.confusion, strict=True):
        table.add_row(name, str(sum(row)), format_percent(error) if any(row) else "")
    table.add_section()
    table.add_row("all", str(scores.images), format_percent(scores.error))
    table.add_row(f"{BALANCED_ERROR.label} (mean of the classes)", "", format_percent(scores.balanced_error))
    return table


def build_catalogue_tables(catalogue: dict[str, dict[str, str]]) -> Iterator[Table]:
    """Return a table for each kind of thing that can be chosen by name."""
    for title, rows in catalogue.items():
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, line in rows.items():
            table.add_row(name, line)
        yield table


def print_predictions(result: PredictionSummary) -> None:
    """Print how many images were classified, and what to be careful with."""
    common = ", ".join(f"{name}: {count}" for name, count in list(result.classes.items())[:10])
    console.print_result(f"{result.images} predictions are in {result.file} ({common}).")
    if result.unlike:
        console.print_result(
            f"Warning: {result.unlike} images are unlike the training images; do not trust their labels."
        )
    if result.skipped:
        console.print_result(
            f"Warning: {result.skipped} images could not be read and were skipped; see {result.skipped_file}."
        )
    if not result.calibrated:
        console.print_result("Note: the confidences are not calibrated, because the run had too few validation images.")
