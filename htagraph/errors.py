"""Every exception and warning of the package.

::

    HTAGraphError(Exception)                                                       .hint
    ├── TraceError(ValueError)               the file                              .path .rank
    │   ├── TraceFormatError                 not a trace that can be read          .offset
    │   │   ├── TraceLimitError              larger or deeper than a stated limit  .offset
    │   │   └── TraceNotFoundError(FileNotFoundError)   no such file
    │   └── MissingEventsError               the trace lacks events of this kind   .missing
    ├── GraphError(RuntimeError)             the graph is inconsistent             .events
    ├── QueryError(ValueError)               the question is wrong
    │   ├── WindowNotFoundError(KeyError)    no such step, annotation or range     .name .available
    │   ├── RankNotFoundError(KeyError)      no such rank in the job               .rank .available
    │   └── CaptureNotChosenError            the folder holds several captures     .listing
    ├── OutputError(OSError)                 the answer cannot be written          .path
    ├── ShortageError(OSError)               no more memory, files or processes
    └── RankFailedError(RuntimeError)        one rank of a job failed              .rank
    HTAGraphWarning(UserWarning)
    ├── AmbiguousWindowWarning               several ranges match; one was taken
    ├── IncompleteTraceWarning               the answer is an approximation, and why
    └── ClockSkewWarning                     clocks could not be aligned within tolerance

Every class also inherits from the builtin that Python code would catch. A message says what is
wrong and where; the hint says what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

__all__ = [
    "NO_THREAD",
    "AmbiguousWindowWarning",
    "CaptureNotChosenError",
    "ClockSkewWarning",
    "GraphError",
    "HTAGraphError",
    "HTAGraphWarning",
    "IncompleteTraceWarning",
    "MissingEventsError",
    "OutputError",
    "QueryError",
    "RankFailedError",
    "RankNotFoundError",
    "ShortageError",
    "TraceError",
    "TraceFormatError",
    "TraceLimitError",
    "TraceNotFoundError",
    "WindowNotFoundError",
    "closest",
    "did_you_mean",
    "one_of",
    "shortage",
]

_MAX_LISTED = 8
"""Chosen: steps or ranks that an error lists."""
_MAX_COMPARED = 5_000
"""Most names that a mistyped one is compared with: chosen, so that it takes 0.1 s at most."""


def closest(word: str, known: Iterable[str]) -> str:
    """The known name closest to a word; empty if none is close."""
    by_lower = {name.lower(): name for name in islice(known, _MAX_COMPARED) if name != word}
    near = get_close_matches(str(word).lower(), by_lower, n=1)
    return by_lower[near[0]] if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Start of a hint: the known name closest to a word; empty if none is close.

    Examples
    --------
    >>> did_you_mean("Idle_tme", ["idle_time", "overlap"])
    "did you mean 'idle_time'? "
    >>> did_you_mean("why", ["idle_time", "overlap"])
    ''
    """
    near = closest(word, known)
    return f"did you mean {near!r}? " if near else ""


def one_of(word: str, known: Iterable[str], what: str = "one of") -> str:
    """Hint for an unknown word: the closest known one, and all of them.

    Examples
    --------
    >>> one_of("nme", ["name", "op"])
    "did you mean 'name'? one of name, op."
    """
    names = list(known)
    return f"{did_you_mean(word, names)}{what} {', '.join(names)}."


class HTAGraphError(Exception):
    """Base of every error of the package.

    Parameters
    ----------
    message : str
        What is wrong, and where.
    hint : str, optional
        What to do about it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        """Message and hint; `KeyError` would quote them."""
        return self.message if self.hint is None else f"{_ended(self.message)} Hint: {self.hint}"

    def __reduce__(self) -> tuple[Callable[..., HTAGraphError], tuple[object, ...]]:
        """Pickle for another process: `args` alone does not fit the constructors."""
        return _restored, (type(self), self.args, self.__dict__)


def _ended(message: str) -> str:
    """A message as a sentence: names and paths that it ends with have no full stop."""
    return message if message.endswith((".", "?", "!", ":")) else f"{message}."


def _restored(
    kind: type[HTAGraphError], args: tuple[object, ...], state: dict[str, object]
) -> HTAGraphError:
    """An unpickled error."""
    made = OSError if issubclass(kind, OSError) else Exception
    error: HTAGraphError = made.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class TraceError(HTAGraphError, ValueError):
    """A trace file cannot be used."""

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        rank: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.rank = rank
        super().__init__(f"{path}: {message}" if path is not None else message, hint=hint)


class TraceFormatError(TraceError):
    """A file is not a readable trace."""

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.offset = offset
        where = f" (at byte {offset:,})" if offset is not None else ""
        super().__init__(message + where, path=path, hint=hint)


class TraceLimitError(TraceFormatError):
    """A file exceeds a stated limit: size of an event, nesting, number of streams."""


class TraceNotFoundError(TraceFormatError, FileNotFoundError):
    """There is no such file or folder."""


class MissingEventsError(TraceError):
    """A question needs events that the trace lacks."""

    def __init__(
        self,
        message: str,
        *,
        missing: str,
        path: str | Path | None = None,
        rank: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.missing = missing
        super().__init__(message, path=path, rank=rank, hint=hint)


class GraphError(HTAGraphError, RuntimeError):
    """A graph is inconsistent: a bug in htagraph, worth reporting."""

    def __init__(
        self, message: str, *, events: Sequence[int] = (), hint: str | None = None
    ) -> None:
        self.events = tuple(events)
        super().__init__(message, hint=hint)


class QueryError(HTAGraphError, ValueError):
    """A question is wrong.

    Parameters
    ----------
    excerpt : str, optional
        Lines that show the wrong place, with a mark below it; printed below the message.
    """

    def __init__(self, message: str, *, hint: str | None = None, excerpt: str = "") -> None:
        self.excerpt = excerpt
        super().__init__(message, hint=hint)

    def __str__(self) -> str:
        """Message and hint, then the excerpt."""
        lines = "".join(f"\n    {line}" for line in self.excerpt.splitlines())
        return f"{super().__str__()}{lines}"


class WindowNotFoundError(QueryError, KeyError):
    """No step, annotation or time range matches.

    Parameters
    ----------
    name : str
        The requested window.
    available : iterable of str
        Steps of the trace.
    where : str, default="this trace"
        Where they were looked up.
    similar : iterable of str
        Further names to suggest.
    """

    def __init__(
        self,
        name: str,
        available: Iterable[str],
        *,
        where: str = "this trace",
        similar: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.available = tuple(available)
        meant = did_you_mean(name, (*self.available, *similar))
        listed = ", ".join(self.available[:_MAX_LISTED]) + (
            " …" if len(self.available) > _MAX_LISTED else ""
        )
        hint = (
            f"available: {listed}."
            if self.available
            else "the trace has no steps; give times from its start, as in 10ms:20ms."
        )
        super().__init__(f"no step or annotation matches {name!r} in {where}.", hint=meant + hint)


class RankNotFoundError(QueryError, KeyError):
    """A job has no such rank."""

    def __init__(self, rank: int, available: Iterable[int]) -> None:
        self.rank = rank
        self.available = tuple(available)
        super().__init__(
            f"no rank {rank} in this job.",
            hint=f"available: {', '.join(map(str, self.available[:_MAX_LISTED]))}.",
        )


class CaptureNotChosenError(QueryError):
    """A folder holds several captures, and none was chosen.

    Parameters
    ----------
    message : str
    listing : str
        The captures as a table, one line each.
    hint : str, optional
    """

    def __init__(self, message: str, *, listing: str, hint: str | None = None) -> None:
        self.listing = listing
        super().__init__(message, hint=hint)

    def __str__(self) -> str:
        """Message, table and hint, each on lines of its own."""
        return f"{self.message}\n{self.listing}" + (f"\nHint: {self.hint}" if self.hint else "")


class OutputError(HTAGraphError, OSError):
    """An output file cannot be written."""

    def __init__(self, message: str, *, path: str | Path, hint: str | None = None) -> None:
        self.path = Path(path)
        super().__init__(f"{path}: {message}", hint=hint)


class ShortageError(HTAGraphError, OSError):
    """The machine, or a limit of its shell, has no more memory, open files or processes."""


class RankFailedError(HTAGraphError, RuntimeError):
    """One rank of a job failed; the cause is chained."""

    def __init__(self, message: str, *, rank: int, hint: str | None = None) -> None:
        self.rank = rank
        super().__init__(f"rank {rank}: {message}", hint=hint)


class HTAGraphWarning(UserWarning):
    """Base of every warning of the package."""


class AmbiguousWindowWarning(HTAGraphWarning):
    """Several ranges have the name of a window; the message says which was taken."""


class IncompleteTraceWarning(HTAGraphWarning):
    """An answer is an approximation, and why."""


class ClockSkewWarning(HTAGraphWarning):
    """Clocks could not be aligned within tolerance."""


_OF_MEMORY = ("failed to map segment", "annot allocate memory")
"""In messages of the loader of libraries, which have no number."""
NO_THREAD = "can't start new thread"
"""Python's message if no thread can be started."""


def shortage(error: BaseException | None) -> ShortageError | None:
    """What there was not enough of, if that is why something failed; None for other errors.

    Examples
    --------
    >>> shortage(ValueError("one is odd")) is None
    True
    >>> str(shortage(RuntimeError("can't start new thread")))[:36]
    'no more threads or processes can be '
    """
    if error is None or isinstance(error, ShortageError):
        return error
    number, text = getattr(error, "errno", None), str(error)
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(map(text.count, _OF_MEMORY)):
        allowed = _allowed("RLIMIT_AS", 1024, "kB")
        hint = "raise the limit (ulimit -v)" if allowed else "use fewer workers (--workers)"
        return ShortageError(
            f"there is not enough memory{allowed}.", hint=f"{hint}, or a machine with more."
        )
    if number in (errno.EMFILE, errno.ENFILE) or os.strerror(errno.EMFILE) in text:
        allowed = _allowed("RLIMIT_NOFILE", 1, "open files")
        return ShortageError(
            f"too many files are open{allowed}.", hint="raise the limit: ulimit -n 4096."
        )
    # A pipe that takes no more at once has the number, too.
    if NO_THREAD in text or (number == errno.EAGAIN and not hasattr(error, "characters_written")):
        allowed = _allowed("RLIMIT_NPROC", 1, "of this user")
        return ShortageError(
            f"no more threads or processes can be started{allowed}.",
            hint="raise the limit (ulimit -u, or that of the container).",
        )
    return shortage(error.__cause__ or error.__context__)


def _allowed(limit: str, unit: int, what: str) -> str:
    """A limit of the shell in words, empty if there is none."""
    try:
        import resource  # noqa: PLC0415  not on Windows
    except ImportError:
        return ""
    most = resource.getrlimit(getattr(resource, limit))[0]
    return "" if most == resource.RLIM_INFINITY else f": the limit is {most // unit:,} {what}"
