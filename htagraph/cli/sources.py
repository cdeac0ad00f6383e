"""Source: the trace, the rank of a job, or the job that the arguments of a command name."""

from __future__ import annotations

import glob
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import commonpath, commonprefix, relpath
from pathlib import Path
from shlex import quote

import pandas as pd
import typer

from htagraph.cli.console import output
from htagraph.cli.exports import readable
from htagraph.cli.pipes import from_pipe, lasting
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import QueryError, RankNotFoundError, TraceError, did_you_mean
from htagraph.model.units import human_count
from htagraph.readers.captures import (
    CaptureName,
    choose_capture,
    companions,
    discover,
    files_in_words,
)
from htagraph.readers.discover import TRACE_SUFFIXES, find_traces, holds_several, is_glob
from htagraph.readers.rank_paths import file_of
from htagraph.readers.storage import exists, is_folder, is_remote, not_found, url_of

_LOG = logging.getLogger("htagraph")
_N_NAMED = 8
"""Chosen: ranks that an error lists."""


def given(
    paths: Sequence[Path] | Path,
    rank: int | None = None,
    capture: str = "",
    beside: Sequence[Path] | None = None,
    form: Format = Format.TABLE,
) -> Source:
    """Source that the arguments of a command name; `--capture list` lists it and ends the command.

    Raises
    ------
    typer.Exit
        After the list.
    """
    source = Source.of(paths, rank, capture, beside or ())
    if capture != "list":
        return source
    if form is Format.TABLE:
        output().print(files_in_words(source.found), markup=False, soft_wrap=True)
    else:
        print_frame(output(), source.found, form)
    raise typer.Exit


@dataclass(frozen=True)
class Source:
    """Files, folders or globs, and the requested rank.

    Parameters
    ----------
    rank : int, optional
        One rank; None for all.
    capture : str
        A number, a file, ``all`` or ``latest``; empty for the latest.
    beside : tuple of Path
        Companion files: data of other tools from the same run.
    """

    given: tuple[Path, ...]
    rank: int | None = None
    capture: str = ""
    beside: tuple[Path, ...] = ()

    @classmethod
    def of(
        cls,
        given: Sequence[Path] | Path,
        rank: int | None = None,
        capture: str = "",
        beside: Sequence[Path] = (),
    ) -> Source:
        """Source of some arguments."""
        every = (given,) if isinstance(given, Path) else given
        paths = tuple(readable(from_pipe(path)) for path in every)
        for path in paths:
            if not exists(file_of(path)) and not is_glob(path):
                raise not_found(path)
        source = cls(paths, rank, capture, tuple(beside))
        if capture and source._is_one_file:
            raise QueryError("--capture needs a folder.", hint=f"{paths[0]} is one file.")
        return source

    @property
    def _is_one_file(self) -> bool:
        return len(self.given) == 1 and not holds_several(self.given[0])

    @property
    def is_job(self) -> bool:
        """Whether it is the ranks of a job, not one trace."""
        return self.rank is None and not self._is_one_file

    @property
    def has_several(self) -> bool:
        """Whether it is several traces of a job; a folder with one trace is that trace."""
        return self.is_job and len(self._traces) > 1

    @property
    def path(self) -> Path:
        """The one path that was given, or the common folder of all files."""
        if len(self.given) == 1 and not is_glob(self.given[0]):
            return self.given[0]
        folders = {file.parent for file in self._files}
        if not any(map(is_remote, folders)):
            folders = {folder.absolute() for folder in folders}
        return Path(commonpath(folders))

    @property
    def name(self) -> str:
        """Name of the job: that of its folder."""
        return self.path.resolve().name

    @property
    def typed(self) -> str:
        """The arguments that name it again, for a shell, as short as they can be."""
        options = [("--rank", self.rank), ("--capture", self.capture)]
        options += [("--beside", url_of(file)) for file in self.beside]
        asked = [
            f"{name} {quote(str(value))}" for name, value in options if value not in (None, "")
        ]
        return " ".join([self._typed_paths, *asked])

    @property
    def _typed_paths(self) -> str:
        """A folder with no other traces, a glob of no other files, or every path; of a pipe, -."""
        paths = [url_of(path) for path in self.given]
        if len(paths) == 1:
            path = self.given[0]
            ends = "/" if is_folder(path) and not is_remote(path) else ""
            return quote(paths[0] + ends) if lasting(path) == path else "-"
        if not any(map(is_remote, self.given)):
            folder = Path(commonpath({path.parent.absolute() for path in self.given}))
            is_all = set(find_traces(folder)) == {path.absolute() for path in self._files}
            if is_all and set(self.found["capture"]) <= {0, 1}:
                is_whole = self.given[0].is_absolute()
                return quote(f"{folder if is_whole else relpath(folder)}/")
            if found := _glob_of(paths):
                return found
        return " ".join(map(quote, paths))

    @cached_property
    def _files(self) -> list[Path]:
        """All trace files, each once."""
        found = [file for path in self.given for file in find_traces(path)]
        return list(dict.fromkeys(found))

    @property
    def _traces(self) -> list[Path]:
        """The files that are traces, without companion files."""
        if len(self._files) == 1:
            return self._files
        return [Path(path) for path in self.found.loc[self.found["capture"] > 0, "path"]]

    @cached_property
    def found(self) -> pd.DataFrame:
        """The captures of the files, schema `frames.CAPTURES`."""
        return discover(self._files)

    @property
    def captures(self) -> list[CaptureName]:
        """The requested captures: one or all."""
        if self.capture == "all":
            return sorted({int(number) for number in self.found["capture"] if number})
        if self.capture.endswith(TRACE_SUFFIXES):
            return [self._capture_with(Path(self.capture).name)]
        if self.capture in ("", "latest"):
            return ["latest"]
        if self.capture.isascii() and self.capture.isdigit():
            return [int(self.capture)]
        raise QueryError(
            f"unknown capture {self.capture!r}.",
            hint="give its number, all, or list, which prints the numbers.",
        )

    def _capture_with(self, file: str) -> int:
        """The number of the capture that a file is of."""
        names = self.found["path"].map(lambda path: Path(path).name)
        numbers = self.found.loc[(names == file) & (self.found["capture"] > 0), "capture"]
        if numbers.empty:
            meant = did_you_mean(file, names)
            hint = f"{meant}--capture list shows them."
            raise QueryError(f"no trace {file} in {self.path}.", hint=hint)
        return int(numbers.iloc[0])

    @property
    def one_capture(self) -> CaptureName:
        """The requested capture, for commands that take one."""
        captures = self.captures
        if self.capture == "all" and len(captures) != 1:
            raise QueryError("this command takes one capture.", hint="give --capture N.")
        return captures[0]

    def ranks(self, capture: CaptureName = "latest") -> Path | list[Path]:
        """Argument for `load_job`; several files are taken as one job, with a notice."""
        if len(self.given) == 1:
            return self.given[0]
        if capture != "latest" or not self._are_one_job:
            return self._chosen(capture)
        _LOG.warning(
            "%s are taken as the ranks of one job.", human_count(len(self._traces), "file")
        )
        return self._traces

    def beside_of(self, file: Path) -> tuple[Path, ...]:
        """Companion files of a trace: the given ones, and those of its process in its folder."""
        found = () if self._is_one_file else companions(self.found, file)
        return (*found, *self.beside)

    @property
    def _are_one_job(self) -> bool:
        """Whether all files are of different ranks, as in one job."""
        ranks = self.found.loc[self.found["capture"] > 0, "rank"]
        return bool((ranks >= 0).all() and ranks.is_unique)

    def _chosen(self, capture: CaptureName) -> list[Path]:
        """The files of a capture; the choice is logged."""
        where = self.given[0] if len(self.given) == 1 else "the list of files"
        paths, note = choose_capture(self.found, where, capture)
        if note:
            _LOG.warning("%s", note)
        return paths

    def file(self, capture: CaptureName = "latest") -> Path:
        """The file of the only trace, or of the requested rank."""
        if self._is_one_file and self.rank is None:
            return self.given[0]
        if self.rank is None and len(self._traces) == 1:
            return self._traces[0]
        by_rank = self._by_rank(capture)
        if self.rank is None:
            if len(by_rank) == 1:
                return next(iter(by_rank.values()))
            more = " …" if len(by_rank) > _N_NAMED else ""
            named = ", ".join(str(rank) for rank in list(by_rank)[:_N_NAMED])
            raise TraceError(
                f"{human_count(len(by_rank), 'rank')}, and this command takes one.",
                path=self.path,
                hint=f"give --rank N, one of {named}{more}; or one file, for example "
                f"{next(iter(by_rank.values()))}.",
            )
        if self.rank not in by_rank:
            raise RankNotFoundError(self.rank, by_rank)
        return by_rank[self.rank]

    def _by_rank(self, capture: CaptureName) -> dict[int, Path]:
        """The file of each rank; files without a rank are numbered in order."""
        paths = self._traces if len(self._traces) == 1 else self._chosen(capture)
        ranks = dict(zip(self.found["path"], self.found["rank"].tolist(), strict=True))
        by_rank = {ranks[str(path)]: path for path in paths if ranks[str(path)] >= 0}
        unnamed = [path for path in paths if ranks[str(path)] < 0]
        free = (number for number in range(len(paths) + 1) if number not in by_rank)
        numbered = dict(zip(free, unnamed, strict=False))
        if self.rank in numbered and len(paths) > 1:
            _LOG.warning(
                "%s records no rank; it is taken as rank %s.", numbered[self.rank].name, self.rank
            )
        return dict(sorted({**by_rank, **numbered}.items()))


def _glob_of(paths: Sequence[str]) -> str:
    """The glob that a shell expands to these paths, in this order; empty if there is none."""
    begin = commonprefix(paths)  # noqa: RUF071  parts of names
    end = commonprefix([path[len(begin) :][::-1] for path in paths])[::-1]  # noqa: RUF071  as above
    matched = glob.glob(f"{glob.escape(begin)}*{glob.escape(end)}")  # noqa: PTH207  with these parts
    if sorted(matched) != list(paths):
        return ""
    return "*".join(quote(part) if part else "" for part in (begin, end))
