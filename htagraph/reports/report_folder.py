"""Folders of reports: one per input and window; no report replaces one on another input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path

from htagraph.errors import OutputError

_ROOT = Path("htagraph-report")
_SUMMARY = "summary.md"
_FILES = (_SUMMARY, "report.html", "critical.pftrace", "critical.dot", "job.pftrace")
"""Files of reports; those that an older report left and a newer one lacks are removed."""

_SHOWN = ("report.html", "critical.pftrace", "job.pftrace")
"""Those for a browser, and for Perfetto."""

_RECORD = re.compile(r"<!-- htagraph report on (\{.*\}) -->\s*\Z")
_UNFIT = re.compile(r"[^\w.+=-]+")


@dataclass(frozen=True)
class ReportOrigin:
    """What a report is about; recorded in a comment at the end of its summary."""

    source: str  # Absolute path of the trace, or of the folder of a job
    # window, capture: as requested: empty for all, and ``latest`` or a number
    window: str = ""
    capture: str = "latest"

    @classmethod
    def of(cls, path: Path, window: str, capture: object = "latest") -> ReportOrigin:
        """The origin of a report on a path."""
        return cls(str(path.resolve()), window, str(capture))

    @property
    def record(self) -> str:
        """A comment in Markdown that says what a report is about."""
        text = json.dumps(asdict(self)).replace(">", "\\u003e")
        return f"<!-- htagraph report on {text} -->\n"

    def check(self, out: Path) -> None:
        """Make sure that a folder holds no report on another input."""
        older = _recorded(out)
        if older is not None and older.source != self.source:
            about = f"the report on {older.source}" if older.source else f"another {_SUMMARY}"
            raise OutputError(
                f"this folder holds {about}, which would be replaced.",
                path=out,
                hint="choose another --out, or delete that one.",
            )

    def folder(self, name: str, within: Path = Path()) -> Path:
        """The folder of the report, named by parent, trace, capture and window."""
        parent = Path(self.source).parent.name
        capture = "" if self.capture == "latest" else f"capture-{self.capture}"
        parts = (_UNFIT.sub("-", part).strip("-") for part in (name, capture, self.window))
        named = "-".join(part for part in parts if part) or "report"
        first = within / _ROOT / parent / named if parent else within / _ROOT / named
        others = (first.with_name(f"{named}-{number}") for number in count(2))
        return next(
            folder for folder in chain((first,), others) if _recorded(folder) in (None, self)
        )

    def files(self, name: str, within: Path) -> list[Path]:
        """What was written of a report on this that one can look at; empty if nothing was."""
        folder = self.folder(name, within)
        if _recorded(folder) != self:
            return []
        return [folder / file for file in _SHOWN if (folder / file).exists()]

    def remove_stale(self, folder: Path, written: Iterable[Path]) -> None:
        """Remove the files of an older report that the new one does not have."""
        for file in {folder / name for name in _FILES} - set(written):
            with suppress(OSError):
                file.unlink()


def _recorded(folder: Path) -> ReportOrigin | None:
    """What the report in a folder is about; nothing known for a foreign one, None for none."""
    file = folder / _SUMMARY
    if not file.exists():
        return None
    try:
        found = _RECORD.search(file.read_text("utf-8", "replace"))
        return ReportOrigin(**json.loads(found[1])) if found else ReportOrigin("")
    except (OSError, ValueError, TypeError):
        return ReportOrigin("")
