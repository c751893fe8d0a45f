"""What a user asks of a training."""

from pathlib import Path

import pytest

from afda.errors import UserError
from afda.training.request import TrainRequest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"snapshots": True, "no_test": True}, "--no-test"),
        ({"resume": True, "overwrite": True}, "choose one of them"),
        ({"minutes": 0.0}, "positive number, not 0"),
        ({"minutes": float("inf")}, "positive number"),
        ({"minutes": 1.0, "steps": 5}, "--minutes decides the number of updates"),
        ({"minutes": 1.0, "resume": True}, "--minutes decides the number of updates"),
        ({"labels": 5, "more_labels": (Path("a.csv"),)}, "so it excludes --labels"),
        ({"group_by": "burst"}, "no grouping called 'burst'"),
        ({"precision": "float16"}, "did you mean 'bfloat16'?"),
    ],
)
def test_contradictory_options_are_refused(options, words):
    with pytest.raises(UserError, match=words.replace("?", r"\?")):
        TrainRequest("digits", **options)


def test_arguments_of_a_plain_request():
    assert TrainRequest("digits").to_arguments() == ["train", "digits"]
    assert TrainRequest("-x").to_arguments() == ["train", "./-x"]  # else it would be taken for an option


def test_arguments_name_everything_that_differs_from_the_default():
    request = TrainRequest(
        "my images",
        seed=20,
        validation=True,
        baseline=False,
        settings=("a=1", "b=2"),
        more_labels=(Path("x.csv"),),
        out=Path("o"),
        resume=True,
        threads=3,
        no_test=True,
    )
    assert request.to_arguments() == [
        *("train", "my images", "--seed", "20", "--validation", "--set", "a=1", "--set", "b=2"),
        *("--more-labels", "x.csv", "--no-baseline", "--out", "o", "--resume", "--threads", "3", "--no-test"),
    ]


def test_arguments_make_the_same_request(monkeypatch):
    """The command line reads what `to_arguments` writes."""
    from afda.cli import app

    received = []
    monkeypatch.setattr("afda.training.session.run_training", lambda request, **_: received.append(request))
    request = TrainRequest(
        "x.npz", labels=7, method="vat+entropy", align="none", net="mlp", steps=3, size=16, seed=4, validation=False
    )
    others = TrainRequest(
        "photos",
        minutes=0.5,
        recipe="r.json",
        settings=("net.width=1",),
        more_labels=(Path("a.csv"), Path("b.csv")),
        group_by="folder",
    )
    last = TrainRequest(
        "x.npz", baseline=True, out=Path("o"), overwrite=True, device="cpu", precision="bfloat16", processes=2
    )
    for one in (request, others, last):
        app(one.to_arguments(), standalone_mode=False)
    assert received == [request, others, last]


def test_the_command_that_continues_a_run():
    assert TrainRequest("my data").to_resume_command(Path("a b")) == "afda train 'my data' --out 'a b' --resume"
    assert TrainRequest("digits", processes=2).to_resume_command(Path("r")).endswith("--resume --processes 2")
