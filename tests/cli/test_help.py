"""Help, version and lists, and the command line as a whole."""

import inspect
import json
import resource
import subprocess
import sys
import typing
from pathlib import Path

import typer
from command import run_command

from afda import __version__
from afda.cli import app
from afda.experiments.catalogue import list_settings
from afda.experiments.cells import EXPERIMENTS
from afda.recipe import list_paths
from afda.recipes import list_recipes, recipe
from afda.registry import list_names

SURFACE = Path(__file__).with_name("command_line.txt")


def test_help_needs_no_torch():
    check = (
        "import sys; from afda.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for arguments in (["--help"], ["train", "--help"], ["bench", "quality", "--help"], ["--version"], []):
        done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True, check=False)
        assert "AssertionError" not in done.stderr


def test_the_module_is_the_command():
    done = run_command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"afda {__version__}\n", "")


def test_help_names_every_command_and_option(afda):
    code, out, _ = afda("--help")
    assert code == 0
    assert all(command in out for command in ("demo", "train", "evaluate", "list"))
    _, out, _ = afda("train", "--help")
    options = "labels method align net steps seed out device precision recipe set resume overwrite json quiet threads"
    assert [o for o in options.split() if f"--{o}" not in out] == []


def test_list(afda):
    code, out, err = afda("list")
    assert (code, err) == (0, "")
    code, text, _ = afda("list", "--json")
    found = json.loads(text)
    for title, there in (
        ("methods", list_names("methods")),
        ("nets", list_names("nets")),
        ("alignments", list_names("align")),
        ("data", list_names("data")),
        ("recipes", list(list_recipes())),
        ("settings", list(list_settings())),
        ("tables", list(EXPERIMENTS)),
    ):
        assert sorted(found[title]) == sorted(there)
        assert all(line and "\n" not in line for line in found[title].values())
        assert all(name in out for name in there)
        assert json.loads(afda("list", title, "--json")[1]) == {title: found[title]}


def test_every_setting_of_every_recipe_is_listed(digits):
    """And a setting that a later one takes back is not said to be changed."""
    known = set(list_settings())
    for name in set(list_recipes()) - {"own-vectors"}:
        made = recipe(name, digits, "vat+entropy+pi-model+mean-teacher", labels=50)
        assert {path for path in list_paths(made.model_dump()) if path not in ("preparation", "optimisation")} <= known
    changes = list_recipes()["cifar10-ablation-cpu"].changes
    assert [c for c in changes if "optimisation.learning_rate" in c] == ["optimisation.learning_rate=0.003"]


def list_commands():
    """Return the functions of all commands, also of groups and their words, by name."""
    found = {command.name: command.callback for command in app.registered_commands}
    for group in app.registered_groups:
        found[group.name] = group.typer_instance.registered_callback.callback
        words = group.typer_instance.registered_commands
        found |= {f"{group.name} {command.name}": command.callback for command in words}
    return dict(sorted(found.items()))


def list_parameters(command):
    """Yield the name, the type, typer's description and the default of every parameter of a command."""
    hints = typing.get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        if hints[parameter.name] is typer.Context:
            continue
        kind, described = typing.get_args(hints[parameter.name])
        option = "--" + parameter.name.replace("_", "-")
        # In an annotation, typer keeps the first given name where the default would be.
        given = [name for name in (described.default, *(described.param_decls or ())) if isinstance(name, str)]
        if isinstance(described, typer.models.ArgumentInfo):
            names = [described.metavar]
        elif given:
            names = sorted(given)
        elif bool in (kind, *typing.get_args(kind)):
            names = [option, option.replace("--", "--no-", 1)]
        else:
            names = [option]
        yield " ".join(names), kind, described, parameter.default


def describe_command_line():
    """Return every command with its arguments and options, their types and defaults."""
    lines = []
    for title, command in list_commands().items():
        lines.append(f"afda {title}")
        for name, kind, _, default in list_parameters(command):
            text = (
                str(kind).replace("pathlib._local.", "").replace("pathlib.", "")
                if typing.get_args(kind)
                else kind.__name__
            )
            value = "" if default in (None, False, "", inspect.Parameter.empty) else f" = {default}"
            lines.append(f"  {name}: {text}{value}")
    return "\n".join(lines) + "\n"


def test_the_command_line_is_the_published_one():
    """If you change the command line on purpose, write the output of `describe_command_line` to the file."""
    assert describe_command_line() == SURFACE.read_text(encoding="utf-8")


def test_every_help_text_is_a_sentence():
    for title, command in list_commands().items():
        summary = inspect.getdoc(command).splitlines()[0]
        assert summary.endswith(".")
        assert len(summary) <= 65, f"{summary} is cut off in afda --help"
        for name, _, described, _ in list_parameters(command):
            assert described.help, name
            assert described.help.endswith((".", "...")), f"{title} {name}: {described.help}"


def test_help_takes_less_than_half_a_second_of_the_processor():
    """Processor time, because other programs may slow this machine down."""

    def measure():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_command("train", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(measure() for _ in range(3)) < 0.5
