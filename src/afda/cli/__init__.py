"""The command line. Heavy imports wait inside the commands, so that --help answers at once."""

import os
import signal
import sys
from typing import Annotated

import typer

from afda.cli import experiments, models, train
from afda.cli.shared import AsJson, print_json
from afda.errors import RunFailed, UserError, printable

app = typer.Typer(
    name="afda",
    help="Train an image classifier from a few labels and many unlabelled images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def version(asked: bool) -> None:
    if asked:
        from afda import __version__

        typer.echo(f"afda {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="print the version")] = False,
) -> None:
    pass


def list_(
    what: Annotated[str, typer.Argument(help="methods, nets, alignments, data, recipes, tables, or all")] = "all",
    as_json: AsJson = False,
) -> None:
    """What there is, with one line each."""
    from afda.display import catalogue_tables, out
    from afda.errors import unknown
    from afda.listing import catalogue

    found = catalogue()
    if what != "all" and what not in found:
        raise unknown("list", what, [*found, "all"])
    shown = found if what == "all" else {what: found[what]}
    if as_json:
        print_json(shown)
    else:
        for table in catalogue_tables(shown):
            out.print(table)


for command in (
    *(experiments.demo, train.train, models.evaluate, experiments.reproduce, experiments.tune, train.check),
    *(models.predict, list_, models.report, models.export, experiments.bench),
):
    app.command(command.__name__.rstrip("_"))(command)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Threads that spin while they wait make a step thirty times slower when other programs want the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except UserError as error:
        fail(2, error)
    except RunFailed as error:
        fail(1, error)
    except KeyboardInterrupt:
        fail(130, "interrupted.")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        fail(
            1,
            "Out of memory; use smaller batches (--set unlabelled_batch=32) or a narrower net (--set net.width=0.25).",
        )


def fail(code: int, message: object) -> None:
    print(f"afda: {printable(str(message))}", file=sys.stderr)
    sys.exit(code)
