"""Changes as the command line writes them: ``--scale 'gemm*=0.5'``."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

from htagraph.errors import QueryError
from htagraph.model.units import TIME_UNITS
from htagraph.replay.changes import (
    Change,
    bandwidth,
    equalise,
    insert,
    no_wait,
    remove,
    reweigh,
    scale,
    without,
)
from htagraph.replay.device_changes import allow_tf32, at_roof, fuse, overlap
from htagraph.replay.draft import Code, code
from htagraph.replay.host_changes import graphed, prefetch

_ALL = "all"
"""Instead of a name: whatever has a roof."""
_CODE = "code "
"""How a table begins the place of untraced code."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ns|us|ms|s)")
_COMMA = re.compile(r",(?![^<(]*[>)])")
"""A comma between names, not one between template arguments."""


def _typed(chosen: object) -> str:
    """What stands for events, or for code, see `_named`."""
    return f"{_CODE}{chosen.place}" if isinstance(chosen, Code) else str(chosen)


_WRITTEN: Mapping[str, Callable[..., str | float | bool]] = {
    "without": str,
    "scale": lambda chosen, by: f"{_typed(chosen)}={by}",
    "remove": _typed,
    "no_wait": str,
    "insert": lambda after, dur_ns: f"{after}={dur_ns}ns",
    "reweigh": lambda chosen, by, ns: f"{chosen}={f'{ns}ns' if by is None else by}",
    "overlap": str,
    "fuse": lambda _, chosen: ",".join(map(str, chosen)),
    "at_roof": lambda _, chosen, __: _ALL if chosen is None else str(chosen),
    "allow_tf32": lambda: True,
    "prefetch": lambda workers: workers,
    "graphed": lambda: True,
    "bandwidth": lambda by: by,
    "equalise": lambda: True,
}
"""What is typed after the option of a change, of its arguments: True for nothing."""


_KINDS: dict[str, dict[str, Any]] = {
    "Sequence[str] | None": {"action": "append"},
    "bool": {"action": "store_true"},
    "float | None": {"type": float},
    "int | None": {"type": int},
}
"""How an option is read, by the type of its field."""


class _Parser(argparse.ArgumentParser):
    """Reads options, and refuses what is none."""

    def error(self, message: str) -> NoReturn:
        raise QueryError(f"changes: {message}.", hint="--scale 'gemm*=0.5' is twice as fast.")


@dataclass(frozen=True)
class ChangeOptions:
    """Options that name changes, as typed."""

    without: Sequence[str] | None = None
    scale: Sequence[str] | None = None
    remove: Sequence[str] | None = None
    no_wait: Sequence[str] | None = None
    insert: Sequence[str] | None = None
    reweigh: Sequence[str] | None = None
    overlap: Sequence[str] | None = None
    fuse: Sequence[str] | None = None
    at_roof: Sequence[str] | None = None
    allow_tf32: bool = False
    prefetch: int | None = None
    graphed: bool = False
    bandwidth: float | None = None
    equalise: bool = False
    rank: int | None = None  # The only rank of a job to change; None for all

    @classmethod
    def read(cls, text: str) -> ChangeOptions:
        """The options in a text, as typed."""
        parser = _Parser(prog="changes", add_help=False, allow_abbrev=False)
        for field in fields(cls):
            option = "on-rank" if field.name == "rank" else field.name.replace("_", "-")
            names = [f"--{option}", *(["--workers"] if option == "prefetch" else [])]
            parser.add_argument(*names, dest=field.name, **_KINDS[str(field.type)])
        try:
            return cls(**vars(parser.parse_args(shlex.split(text))))
        except ValueError as error:  # quotes that are not closed
            parser.error(str(error))

    @property
    def needs_job(self) -> bool:
        """Whether the options only make sense for a job."""
        return self.equalise or self.rank is not None

    def changes(self) -> tuple[Change, ...]:
        """Changes in the order of the options above."""
        found = (
            *(without(cause) for cause in self.without or ()),
            *(_scaled(text) for text in self.scale or ()),
            *(remove(_named(name)) for name in self.remove or ()),
            *(no_wait(name) for name in self.no_wait or ()),
            *(_inserted(text) for text in self.insert or ()),
            *(_reweighed(text) for text in self.reweigh or ()),
            *(overlap(name) for name in self.overlap or ()),
            *(_fused(text) for text in self.fuse or ()),
            *(at_roof(None if name == _ALL else name) for name in self.at_roof or ()),
            *([allow_tf32()] if self.allow_tf32 else []),
            *([prefetch(self.prefetch)] if self.prefetch is not None else []),
            *([graphed()] if self.graphed else []),
            *([bandwidth(self.bandwidth)] if self.bandwidth is not None else []),
            *([equalise()] if self.equalise else []),
        )
        if self.rank is None:
            return found
        if not found:
            hint = "add one, for example --on-rank 3 --scale 'gemm*=0.5'."
            raise QueryError("--on-rank needs a change to make on that rank.", hint=hint)
        return tuple(change.on_rank(self.rank) for change in found)


def options_of(change: Change) -> str:
    """The options of `htagraph what-if` that make a change; empty if none make just that."""
    if change.rank is not None:
        inner = options_of(replace(change, rank=None))
        return inner and f"{inner} --on-rank {change.rank}"
    name = change.name
    if name not in _WRITTEN:
        return ""
    value = _WRITTEN[name](*change.args)
    typed: Any = [value] if isinstance(value, str) else value
    with suppress(QueryError):
        if ChangeOptions(**{name: typed}).changes() == (change,):
            words = [] if isinstance(value, bool) else [str(value)]
            return shlex.join([f"--{name.replace('_', '-')}", *words])
    return ""


def _scaled(text: str) -> Change:
    """The change of ``NAME=FACTOR``."""
    hint = "--scale 'gemm*=0.5' is twice as fast."
    name, factor = _parts(text, hint)
    try:
        by = float(factor)
    except ValueError:
        raise QueryError(f"{factor!r} is not a number.", hint=hint) from None
    return scale(_named(name), by=by)


def _named(name: str) -> str | Code:
    """What a name stands for: events, or code as tables print it (``code after aten::mm``)."""
    place = name.removeprefix(_CODE)
    return name if place == name else code(place)


def _inserted(text: str) -> Change:
    """The change of ``NAME=50us``."""
    hint = "--insert 'aten::mm=50us', in ns, us, ms or s."
    name, time = _parts(text, hint)
    return insert(after=name, dur_ns=_time_ns(time, hint))


def _reweighed(text: str) -> Change:
    """The change of ``KIND=0.5``, or ``KIND=5us``."""
    hint = "--reweigh launch=0.5, or launch=5us, in ns, us, ms or s."
    kind, weight = _parts(text, hint)
    with suppress(ValueError):
        return reweigh(kind, by=float(weight))
    return reweigh(kind, lag_ns=_time_ns(weight, hint))


def _time_ns(time: str, hint: str) -> int:
    """A duration with its unit."""
    found = _DURATION.fullmatch(time)
    if found is None:
        raise QueryError(f"{time!r} is not a duration.", hint=hint)
    return round(float(found[1]) * TIME_UNITS[found[2]])


def _fused(text: str) -> Change:
    """The change of ``NAME,NAME``."""
    names = [name.strip() for name in _COMMA.split(text)]
    if len(names) == 1 or not all(names):
        raise QueryError(f"--fuse needs two names or more, not {text!r}.", hint="'add*,mul*'.")
    return fuse(*names)


def _parts(text: str, hint: str) -> tuple[str, str]:
    """Both sides of the last ``=``."""
    name, separator, value = text.rpartition("=")
    if not separator or not name:
        raise QueryError(f"{text!r} is not NAME=VALUE.", hint=hint)
    return name, value.strip()
