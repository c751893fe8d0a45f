"""The panel about the automatic choice: the candidates, which one was taken and why."""

from dataclasses import dataclass

from afda.report.load_runs import LoadedRun
from afda.runs.selection import Judgement
from afda.runs.statistics import Interval


@dataclass(frozen=True)
class CandidateRow:
    """A candidate with its cross-validated error in percent; None if it was not trained."""

    name: str
    summary: str
    uses_unlabelled: bool
    trainings: int
    images: int
    """Held-out images that it was tested on."""
    error: float | None
    interval: Interval | None


@dataclass(frozen=True)
class SelectionPanel:
    """The candidates of a selection, the chosen one, and whether the unlabelled images help."""

    candidates: list[CandidateRow]
    chosen: str
    reason: str
    folds: int
    steps_share: float
    """The length of the compared trainings, as a share of the final one."""
    judgement: Judgement | None


def describe_selection(run: LoadedRun) -> SelectionPanel | None:
    """Return the candidates that a run was chosen from; None if no candidates were compared."""
    selection = run.selection
    if selection is None or selection.chosen is None:
        return None
    rows = []
    for candidate in selection.candidates:
        estimate = selection.estimate(candidate)
        rows.append(
            CandidateRow(
                name=candidate.name,
                summary=candidate.summary,
                uses_unlabelled=candidate.uses_unlabelled,
                trainings=len(candidate.trials),
                images=0 if estimate is None else estimate.images,
                error=None if estimate is None else estimate.error,
                interval=None if estimate is None else estimate.interval,
            )
        )
    return SelectionPanel(
        candidates=rows,
        chosen=selection.chosen,
        reason=selection.reason or "",
        folds=len(selection.folds),
        steps_share=selection.steps_share,
        judgement=selection.judge(),
    )
