"""The text of a drawn timeline as boxes: place, name and markers of each event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from htagraph.errors import QueryError

_LABEL = re.compile(
    r"\s*(?:(?P<host>cpu|thread) (?P<tid>\d+)|(?:gpu (?P<gpu>\d+) )?stream (?P<stream>\d+)|us)\s*\|"
)
_MARKER = re.compile(r"(?P<sign>~>|~<|[<>!?@])(?P<label>[\w.]+|\*)")
_TOKEN = re.compile(
    r"(?P<open>[\[{])|(?P<close>[\]}])|\^(?P<point>[^\s\[\]{}^]+)|(?P<text>[^\[\]{}^]+|\^)"
)
_CLOSING = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class Line:
    """One track of a drawing; `device` is -1 for a host thread."""

    number: int
    text: str
    tid: int
    device: int

    def error(self, column: int, message: str, *, hint: str | None = None) -> QueryError:
        """An error at a place of the drawing."""
        return QueryError(f"timeline, line {self.number}, column {column}: {message}", hint=hint)


@dataclass
class Box:
    """One drawn event: ``start <= column < end``; `markers` are labels by sign."""

    line: Line
    bracket: str
    start: int
    end: int = -1
    text: str = ""
    name: str = ""
    markers: dict[str, str] = field(default_factory=dict)
    has_inner: bool = False

    @property
    def on_device(self) -> bool:
        """Whether the event is drawn on a stream."""
        return self.line.device >= 0

    def error(self, message: str, *, hint: str | None = None) -> QueryError:
        """An error at the place of this event."""
        return self.line.error(self.start, message, hint=hint)


def parse(drawing: str) -> list[Box]:
    """The events of a drawing, line by line, left to right.

    Raises
    ------
    QueryError
        If the drawing cannot be read; the message names line and column.

    Examples
    --------
    >>> [(box.name, box.start, box.end, box.markers) for box in parse("cpu 1 |[op [call >a]  ]")]
    [('op', 0, 16, {}), ('call', 4, 13, {'>': 'a'})]
    """
    return [box for line in _lines(drawing) for box in _boxes(line)]


def _lines(drawing: str) -> Iterator[Line]:
    """The tracks of a drawing, without rulers, comments and empty lines."""
    for number, text in enumerate(drawing.splitlines(), start=1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        label = _LABEL.match(text)
        if label is None:
            raise QueryError(
                f"timeline, line {number}, column 0: no track in {text.strip()[:20]!r}.",
                hint="begin with 'cpu 1 |', 'thread 1 |', 'stream 7 |' or 'gpu 0 stream 7 |'.",
            )
        if label["host"]:
            yield Line(number, text[label.end() :], int(label["tid"]), -1)
        elif label["stream"]:
            yield Line(number, text[label.end() :], int(label["stream"]), int(label["gpu"] or 0))


def _boxes(line: Line) -> list[Box]:
    """The events of a line, left to right."""
    found: list[Box] = []
    stack: list[Box] = []
    for token in _TOKEN.finditer(line.text):
        column = token.start()
        if token["open"] or token["point"]:
            if stack:
                stack[-1].has_inner = True
            found.append(Box(line, token[0][0], start=column, end=column))
        if token["open"]:
            stack.append(found[-1])
        elif token["point"]:
            found[-1].text = _MARKER.sub(r" \g<0>", token["point"])
        elif token["close"]:
            _close(line, stack, column)
        elif stack and not stack[-1].has_inner:
            stack[-1].text += token[0]
        elif token[0].strip():
            column += len(token[0]) - len(token[0].lstrip())
            raise line.error(
                column,
                f"{token[0].strip()!r} is outside an event.",
                hint="write the name right after '['.",
            )
    if stack:
        raise stack[-1].error(f"{stack[-1].bracket!r} is not closed.")
    return [_with_name(box) for box in found]


def _close(line: Line, stack: list[Box], column: int) -> None:
    """End the innermost box at a closing bracket."""
    bracket = line.text[column]
    if not stack or _CLOSING[stack[-1].bracket] != bracket:
        raise line.error(column, f"{bracket!r} has no opening bracket.")
    stack.pop().end = column + 1


def _with_name(box: Box) -> Box:
    """Split the text of a box into name and markers."""
    words = box.text.split()
    first = next((i for i, word in enumerate(words) if _MARKER.fullmatch(word)), len(words))
    box.name = " ".join(words[:first])
    if not box.name:
        raise box.error("an event needs a name.")
    for word in words[first:]:
        marker = _MARKER.fullmatch(word)
        if marker is None:
            raise box.error(
                f"{word!r} is not a marker.",
                hint="markers are >a <a ~>f ~<f !r ?r @7, after the name.",
            )
        box.markers[marker["sign"]] = marker["label"]
    return box
