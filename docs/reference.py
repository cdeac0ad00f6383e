"""Pages of the reference, made from the package: answers, Python and the command line.

Columns come from the schemas, sentences from docstrings, verbs and options from the command line
itself; so nothing is written twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

import htagraph
from htagraph.cli.main import app_of
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.model import frames
from htagraph.model.columns import schema_of
from htagraph.model.schema import Schema
from htagraph.queries.questions import ARGS_READERS, QUESTIONS, Questions

FOLDER = "reference"
SHOWN = ("answers", "job-answers", "tables", "command-line", "python")
"""Pages that the navigation lists; the others are below the last."""


def write(folder: Path) -> None:
    """Write all pages into the folder of the reference; what is the same stays untouched."""
    home = folder / FOLDER
    home.mkdir(exist_ok=True)
    written = pages()
    for name, text in written.items():
        file = home / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    for stale in {file.name for file in home.iterdir()} - set(written):
        (home / stale).unlink()


def pages() -> dict[str, str]:
    """Text of each page by the name of its file."""
    return {
        "answers.md": _answers(),
        "job-answers.md": _job_answers(),
        "tables.md": _tables(),
        "command-line.md": _command_line(),
        **_python(),
    }


# Answers


def _answers() -> str:
    """The page of the questions that a trace answers."""
    asked = "\n".join(
        _question(name, Questions, schema_of(name), "graph", "FILE") for name in QUESTIONS
    )
    return (
        "# Answers of a trace\n\n"
        "What `graph = hg.load(FILE).compile()` can be asked. Every answer is a DataFrame with "
        "these columns, in this order, also where there is nothing to tell. `job` answers the same "
        "for every rank, with one more column, `rank`, in front. Times are whole nanoseconds, "
        "shares go from 0 to 1.\n\n" + asked
    )


def _job_answers() -> str:
    """The page of the questions that only a job answers, or answers otherwise."""
    asked = "\n".join(
        _question(name, Job, schema_of(name, of_job=True), "job", "FOLDER")
        for name in JOB_QUESTIONS
    )
    return (
        "# Answers of a job\n\n"
        'What `job = hg.load_job("FOLDER")` can be asked beyond the questions of '
        "[a trace](answers.md).\n\n" + asked
    )


def _tables() -> str:
    """The page of the tables of objects."""
    tables = "\n".join(
        f"## `{name}`\n\n{_columns(getattr(frames, name))}" for name in frames.__all__
    )
    return (
        "# Tables of objects\n\n"
        "Columns of the tables that are no answers to questions: events, edges, the segments of "
        "paths, differences.\n\n" + tables
    )


def _question(name: str, owner: type, schema: Schema, noun: str, file: str) -> str:
    """A question: its definition, its options, how to ask it, and its columns."""
    member = inspect.getattr_static(owner, name)
    function = member if inspect.isfunction(member) else None
    options = [
        option
        for option in (inspect.signature(function).parameters.values() if function else ())
        if option.kind is option.KEYWORD_ONLY
    ]
    said = inspect.cleandoc(member.__doc__ or getattr(member, "__doc__", "")).split("\n\n")
    prose = "\n\n".join(part for part in said[: _n_prose(said)])
    call = f"{noun}.{name}" + ("()" if function else "")
    lines = [f"## {name}\n", _as_markdown(prose) + "\n"]
    lines += ["| Python | command line |", "| --- | --- |"]
    lines += [f"| `{call}` | `htagraph ask {name} {file}` |\n"]
    if options:
        told = ", ".join(f"`{one.name}={one.default!r}`" for one in options)
        first = options[0]
        typed = f"-o {first.name}={'NAME' if first.default is None else first.default}"
        lines += [f"Options, with their defaults: {told}; on the command line `{typed}`.\n"]
    if name in ARGS_READERS:
        lines += ["It needs the file that the graph was made from.\n"]
    return "\n".join([*lines, _columns(schema)])


def _n_prose(parts: list[str]) -> int:
    """How many paragraphs come before the first section of a docstring."""
    sections = (number for number, part in enumerate(parts) if "\n---" in part)
    return next(sections, len(parts))


def _columns(schema: Schema) -> str:
    """Table of the columns of a schema."""
    rows = (
        f"| `{name}` | {column.dtype} | {column.unit} | {_cell(column.meaning)} |"
        for name, column in schema.columns.items()
    )
    first = ", ".join(f"`{name}`" for name in schema.first.split())
    shown = [f"On the terminal by default: {first}.", ""] if first else []
    return "\n".join(
        ["| column | dtype | unit | meaning |", "| --- | --- | --- | --- |", *rows, "", *shown]
    )


def _cell(text: str) -> str:
    """Text that stays in one cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def _as_markdown(text: str) -> str:
    """Text of a docstring: double backticks become single ones."""
    return text.replace("``", "`")


# The command line


def _command_line() -> str:
    """The page of all verbs."""
    verbs = "\n".join(_verb(one.callback) for one in app_of().registered_commands if one.callback)
    return (
        f"# Command line\n\n{app_of().info.help}\n\nThe exit code is 0; 1 for input that cannot be "
        "answered, 2 for wrong usage, 130 after an interrupt, 143 after SIGTERM. Answers go to "
        "the output, notices and progress to the error stream.\n\n" + verbs
    )


def _verb(function: Callable[..., object]) -> str:
    """A verb: what it does, its arguments and its options."""
    name = f"htagraph {function.__name__.replace('_', '-')}"
    defaults = {one.name: one.default for one in inspect.signature(function).parameters.values()}
    hints = get_type_hints(function, include_extras=True)
    told = [(key, *get_args(hints[key]), defaults[key]) for key in defaults]
    arguments = [one for one in told if isinstance(one[2], ArgumentInfo)]
    options = [one for one in told if isinstance(one[2], OptionInfo) and not one[2].hidden]
    shown = " ".join(_taken(*one[:3]) for one in arguments)
    rows = [f"| `{_taken(*one[:3])}` | {_cell(one[2].help or '')} |" for one in arguments]
    rows += [
        f"| {_spelled(*one[:3])} | {_cell(one[2].help or '')}{_default(*one[2:])} |"
        for one in options
    ]
    return (
        f"## {name}\n\n{_as_markdown(inspect.cleandoc(function.__doc__ or ''))}\n\n"
        f"```text\n{' '.join(filter(None, [name, '[OPTIONS]', shown]))}\n```\n\n"
        "| argument or option | what it does |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    )


def _taken(name: str, kind: Any, info: ParameterInfo) -> str:  # noqa: ANN401  an annotation
    """What is given for an argument or an option."""
    if info.metavar:
        return str(info.metavar)
    choices = [one for one in (kind, *get_args(kind)) if inspect.isclass(one)]
    enums = [one for one in choices if issubclass(one, Enum)]
    if enums:
        return "|".join(str(member.value) for member in enums[0])
    return {Path: "PATH", int: "N", float: "NUMBER", str: "TEXT"}.get(choices[0], name.upper())


def _spelled(name: str, kind: Any, info: OptionInfo) -> str:  # noqa: ANN401  an annotation
    """An option as it is typed, with what it takes."""
    names = _names(info) or [f"--{name.replace('_', '-')}"]
    takes = "" if kind is bool else f" `{_taken(name, kind, info)}`"
    return ", ".join(f"`{one}`" for one in names).replace("|", "\\|") + takes.replace("|", "\\|")


def _names(info: OptionInfo) -> list[str]:
    """Names of an option, as declared; in an annotation, typer takes the first for a default."""
    declared = (info.default, *(info.param_decls or ()))
    return [one for one in declared if isinstance(one, str) and one.startswith("-")]


def _default(info: OptionInfo, default: object) -> str:
    """The default of an option; nothing where it says nothing."""
    if isinstance(info.show_default, str):
        return f" Default: `{info.show_default}`."
    if default is None or default is False or default in ("", 0, 0.0, [], ()):
        return ""
    if default is True:
        return f" Default: `{_names(info)[0].partition('/')[0]}`."
    return f" Default: `{default.value if isinstance(default, Enum) else default}`."


# Python


def _python() -> dict[str, str]:
    """The pages of the public names: one for each class and room, one for all functions."""
    public = {name: getattr(htagraph, name) for name in htagraph.__all__}
    rooms = {name: value for name, value in public.items() if inspect.ismodule(value)}
    classes = {name: value for name, value in public.items() if inspect.isclass(value)}
    functions = {name: public[name] for name in public if name not in {*rooms, *classes}}
    pages = {
        "python-functions.rst": _page(
            "Functions", (_member("htagraph", *one) for one in functions.items())
        ),
        **{
            f"python-{name}.rst": _page(name, [_member("htagraph", name, value)])
            for name, value in classes.items()
        },
        **{f"python-{name}.rst": _room(name, value) for name, value in rooms.items()},
    }
    listed = "\n".join(
        f"   * - :py:obj:`htagraph.{name}`\n     - {_first_line(value)}"
        for name, value in public.items()
    )
    tree = "\n".join(f"   {page.removesuffix('.rst')}" for page in pages)
    pages["python.rst"] = (
        ".. py:currentmodule:: htagraph\n\nPython\n======\n\n"
        "``import htagraph as hg`` has these names; all else may change without "
        f"notice.\n\n.. list-table::\n\n{listed}\n\n.. toctree::\n   :hidden:\n\n{tree}\n"
    )
    return pages


def _page(title: str, members: Iterable[str]) -> str:
    """A page of members."""
    return f"{title}\n{'=' * len(title)}\n\n" + "\n".join(members)


def _room(name: str, room: ModuleType) -> str:
    """The page of a room: what its docstring says, and its names."""
    members = {member: getattr(room, member) for member in room.__all__}
    said = inspect.cleandoc(room.__doc__ or "")
    parts = [f".. py:module:: htagraph.{name}\n", f"{said}\n"]
    return _page(name, [*parts, *(_member(f"htagraph.{name}", *one) for one in members.items())])


def _member(home: str, name: str, value: object) -> str:
    """Directive that documents a public name."""
    path = f"{home}.{name}"
    if inspect.isclass(value) and issubclass(value, BaseException):
        return f".. autoexception:: {path}\n"
    if inspect.isclass(value) and issubclass(value, Enum):
        return f".. autoclass:: {path}\n   :members:\n   :undoc-members:\n"
    if inspect.isclass(value):
        inherited = "   :inherited-members:\n" if issubclass(value, Questions) else ""
        return f".. autoclass:: {path}\n   :members:\n{inherited}"
    return f".. auto{'function' if callable(value) else 'data'}:: {path}\n"


def _first_line(value: object) -> str:
    """The definition in a docstring."""
    return inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
