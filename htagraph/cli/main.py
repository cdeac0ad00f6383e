"""The `htagraph` command: one verb per question."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from htagraph import __version__
from htagraph.cli.console import complain, sentences
from htagraph.cli.interrupts import is_interrupted
from htagraph.cli.plain import speaks_plainly
from htagraph.errors import HTAGraphError, shortage

__all__ = ["VERBS", "app_of", "main"]

VERBS = (
    "report",
    "path",
    "what-if",
    "ask",
    "diff",
    "check",
    "hang",
    "info",
    "view",
    "dot",
    "repair",
    "demo",
    "mcp",
    "warm",
)
"""Each is a module of this package with a function of the same name."""


def app_of(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The application with some verbs; only their modules are loaded."""
    app = typer.Typer(
        name="htagraph",
        help="Find what bounds a PyTorch run: the exact critical path of a profiler trace.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in verbs:
        name = verb.replace("-", "_")
        app.command()(getattr(import_module(f"htagraph.cli.{name}"), name))
    return app


def _print_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"htagraph {__version__}")
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options before the verb."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; exit code 0, 1 for unusable input, 2 for wrong usage.

    Parameters
    ----------
    args : sequence of str, optional
        Arguments of the process by default.
    """
    speaks_plainly()
    try:
        given = sys.argv[1:] if args is None else list(args)
        verbs = given[:1] if given[:1] and given[0] in VERBS else VERBS
        with sentences():
            app_of(verbs)(args=given)
    except HTAGraphError as error:
        if not is_interrupted():
            complain(error)
        sys.exit(1)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        _leave_output()
    except (MemoryError, ImportError, RuntimeError) as error:
        if (short := shortage(error)) is None:
            raise
        complain(short)
        sys.exit(1)
    except OSError as error:  # the disk of the output, or of a temporary file
        if (short := shortage(error)) is not None:
            complain(short)
            sys.exit(1)
        if error.errno is None:  # of a library, not of a disk
            complain(HTAGraphError(str(error)))
            sys.exit(1)
        place = error.filename or "the output"
        hint = "check the free space and the permissions."
        complain(HTAGraphError(f"{place}: {error.strerror or error}.", hint=hint))
        _leave_output()


def _leave_output() -> NoReturn:
    """End without flushing the output again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


if __name__ == "__main__":
    main()
