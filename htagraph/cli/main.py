"""The `htagraph` command: one verb per question."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import TextIOWrapper
from keyword import iskeyword
from typing import Annotated, NoReturn

import typer

from htagraph import __version__
from htagraph.cli.console import complain, sentences
from htagraph.cli.interrupts import is_interrupted
from htagraph.errors import HTAGraphError, shortage

_PLAIN = str.maketrans("·…–—→µ×▏▎▍▌▋▊▉█", "-~--" + ">ux" + "   " + "#####")
"""Replacements, each of one character, so that tables stay aligned."""


def speaks_plainly() -> None:
    """Replace characters that the encoding of output and notices lacks."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replacement for text that cannot be encoded; letters of names are escaped."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode(), error.end


VERBS = {
    "report": "Find what limits a run and what to try first.",
    "path": "Print the critical path of a trace or a job, grouped.",
    "why": "Say why an event started only then: what it waited for.",
    "query": "Find chains of events by a pattern: what follows what.",
    "sql": "Answer a query in SQL over events, edges, the path and more.",
    "what-if": "Predict what would help, and by how much, or what a change saves.",
    "try": "Predict what a change saves, run it, and say whether it did.",
    "ask": "Answer a question; `htagraph ask list` lists all.",
    "diff": "Compare the steps of two runs, with noise.",
    "check": "Check a run against limits, for continuous integration.",
    "watch": "Print a line for each new trace of a folder, and keep its profile.",
    "history": "Print the kept runs of a folder, and where their step time changed.",
    "hang": "Find where a job hangs, from its Flight Recorder dumps.",
    "info": "List what a trace holds and lacks, and how to record the rest.",
    "view": "Open a trace in the Perfetto UI, zoomed to what limits it.",
    "dot": "Write the critical path as DOT for Graphviz.",
    "repair": "Make a broken trace valid and list the repairs.",
    "demo": "Report on training runs, each with a planted fault.",
    "mcp": "Serve coding agents over MCP (stdio).",
    "warm": "Compile all native code now, so that the first trace is fast.",
}
"""Each is a function of this package, in a module of its name or of `HOMES`; here, in one line."""

HOMES = dict.fromkeys(("dot", "repair", "hang", "mcp"), "verbs")
HOMES |= dict.fromkeys(("ask", "query", "sql"), "rows")
HOMES |= {"why": "path", "diff": "check", "info": "report", "warm": "demo"}

_LISTS: tuple[list[str], ...] = ([], ["-h"], ["--help"])
"""Arguments that only list the verbs."""

_COMPLETION = "_HTAGRAPH_COMPLETE"
"""What a shell sets in the environment to ask for completions, which need all verbs."""

_WIDEST = 200
"""Chosen: columns of help at most, even on a wider terminal; click's own limit is 80."""


def function_of(verb: str) -> str:
    """The name of the function of a verb, and of its module unless `HOMES` has it."""
    return verb.replace("-", "_") + "_" * iskeyword(verb)


def app_of(verbs: Iterable[str] = VERBS, *, listed: bool = False) -> typer.Typer:
    """The application with some verbs: only their modules are loaded, none if `listed`."""
    app = typer.Typer(
        name="htagraph",
        help="Find what limits a PyTorch run: the exact critical path of a profiler trace.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST},
    )
    app.callback()(_options)
    for verb in verbs:
        name = function_of(verb)
        home = f"htagraph.cli.{HOMES.get(verb, name)}"
        run = (lambda: None) if listed else getattr(import_module(home), name)
        app.command(verb, short_help=VERBS[verb])(run)
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
    """Run the command line; exit code 0, 1 for unusable input, 2 for wrong usage."""
    speaks_plainly()
    try:
        given = sys.argv[1:] if args is None else list(args)
        verbs = given[:1] if given[:1] and given[0] in VERBS else VERBS
        with sentences():
            app_of(verbs, listed=given in _LISTS and _COMPLETION not in os.environ)(args=given)
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
