"""The ``symloss`` program: all of its commands, and how it prints errors and warnings."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Annotated

import typer

from symloss import __version__
from symloss.cli.audit import audit
from symloss.cli.data import data
from symloss.cli.fit import fit
from symloss.cli.losses import atlas, certify, cite, losses
from symloss.cli.options import QuietGroup, QuietHelp, reflowed
from symloss.cli.output import say, visible
from symloss.cli.tables import recipe, report, reproduce
from symloss.cli.training import compare, predict, train
from symloss.cli.tune import tune
from symloss.own_code import note_of

SUMMARY = "Train classifiers on noisy labels, and find the mislabelled examples."
app = typer.Typer(
    name="symloss",
    help=SUMMARY,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=QuietGroup,
)
GROUPS = {
    "Your data": (fit, audit, predict),
    "Losses": (losses, certify, cite, atlas),
    "Research": (train, compare, tune, recipe, reproduce, report),
}
"""The commands, as ``--help`` groups them."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"symloss {__version__}")
        raise typer.Exit


@app.callback(help=SUMMARY)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True, metavar="")
    ] = False,
) -> None: ...


for _panel, _commands in GROUPS.items():
    for _command in _commands:
        _help, _epilog = reflowed(_command.__doc__), getattr(_command, "epilog", None)
        app.command(cls=QuietHelp, rich_help_panel=_panel, help=_help, epilog=_epilog)(_command)
app.add_typer(data, name="data", rich_help_panel="Your data")


def _say(trouble: object) -> None:
    """Print one line. Control characters in it are made visible."""
    say(f"symloss: {visible(str(trouble))}", err=True)


def main() -> None:
    """Run a command.

    Bad input is reported in one sentence, without a traceback. The exit code is 2. An error in the user's code is
    reported with its traceback, after a line that names the code. The exit code is 1.
    """
    warnings.showwarning = lambda message, *_, **__: _say(message)  # without the file and line of the code
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        note = note_of(error)
        if note is not None:
            _say(f"{note}:")
            traceback.print_exception(error)
            sys.exit(1)
        if not isinstance(error, (ValueError, TypeError, OSError)):
            raise
        _say(error)
        sys.exit(2)
