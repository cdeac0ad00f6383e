"""Short names of kernels for boxes and tables, without templates and arguments, and back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

_RETURN_TYPE = re.compile(r"^(?:void |std::enable_if<.*?>::type )")
_NEXT_BATCH = re.compile(r"^enumerate\(DataLoader\)#_\w+(\.__next__)$")
_ARGUMENTS = re.compile(r"[\w>]\(")
_HEAD = re.compile(r"([^<(]*)(?:<([\w:]+))?")
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_STREAM = re.compile(r"(?:gpu \S+ )?stream ")
_DOT = " · "
CUT = "…"
"""In place of the middle of a name."""
_UNCUT = 1 << 20
"""Characters of a label that is not cut: names of a trace are shorter."""
_SAYS_LITTLE = {"kernel", "kernel2", "device_kernel"}
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Control characters, also of writing direction, line ends, and halves of surrogate pairs."""
_N_CONTROLS, _PICTURES, _DELETE, _DELETED, _UNKNOWN = 0x20, 0x2400, "\x7f", "\u2421", "\ufffd"


def printable(text: str) -> str:
    r"""Text on one line, with a visible character for each control character.

    Names in a trace are data: they move no cursor, end no line and can always be encoded.
    """
    return _UNPRINTABLE.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    """A visible character for a control character; a space for white space."""
    char = found[0]
    if char in "\t\n\r":
        return " "
    if ord(char) < _N_CONTROLS:
        return chr(_PICTURES + ord(char))
    return _DELETED if char == _DELETE else _UNKNOWN


def name_label(name: str, *, width: int = 48) -> str:
    """Short name: a C++ function without return type, namespaces, template, arguments; `printable`.

    `width`: longer names lose their middle.
    """
    short = name = _NEXT_BATCH.sub(r"DataLoader\1", printable(name))
    is_function = name.endswith((")", ") const")) and _ARGUMENTS.search(name)
    if is_function or _RETURN_TYPE.match(name):
        bare = _RETURN_TYPE.sub("", name).replace("(anonymous namespace)::", "")
        head, template = _HEAD.findall(bare)[0]
        short = head.rsplit("::", 1)[-1].strip() or name
        if template and short.lower() in _SAYS_LITTLE:
            short = f"{short}<{template.rsplit('::', 1)[-1]}>"
    return _cut(short, width)


def track_name(track: str) -> str:
    """A track for people: a thread is called one; a stream is called so already."""
    return track if not track or _STREAM.match(track) else f"thread {track}"


def _cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    head_width = width * 2 // 3
    return f"{text[:head_width]}{CUT}{text[len(text) + head_width + 1 - width :]}"


def _told(short: str, word: str, width: int) -> str:
    """Short name with the word that tells it from others, of which most is kept."""
    word = _cut(word, max(width * 2 // 3, 1))
    return f"{_cut(short, max(width - len(word) - len(_DOT), 1))}{_DOT}{word}"


def distinct_names(names: Sequence[str], *, width: int = 48) -> dict[str, str]:
    """Short, distinct names; `is_printed_as` finds the name of each.

    Where two are the same, they get the first word that only one of them has, else a mark.
    """
    words = {name: dict.fromkeys(_WORD.findall(name)) for name in names}
    alike: dict[str, list[str]] = {}
    for name in words:
        alike.setdefault(name_label(name, width=width), []).append(name)
    distinct = {
        name: _told(short, word, width) if word else short
        for short, same in alike.items()
        for name, word in zip(same, _telling(same, [words[one] for one in same]), strict=True)
    }
    count = Counter(distinct.values())
    return {
        name: text if count[text] == 1 else _told(name_label(name, width=width), _mark(name), width)
        for name, text in distinct.items()
    }


def labels_among(names: Iterable[str], every: Iterable[str]) -> dict[str, str]:
    """Short names that are distinct among all names of a trace, not only among those shown."""
    asked = dict.fromkeys(names)
    shorts = set(map(name_label, asked))
    distinct = distinct_names([name for name in every if name_label(name) in shorts])
    return {name: distinct[name] for name in asked if name in distinct}


def _telling(names: Sequence[str], alike: Sequence[dict[str, None]]) -> list[str]:
    """For names with the same label, by their words: a word that only it has, or a mark."""
    if len(alike) == 1:
        return [""]
    count = Counter(word for words in alike for word in words)
    own = (next((word for word in words if count[word] == 1), "") for words in alike)
    return [word or _mark(name) for word, name in zip(own, names, strict=True)]


def _mark(name: str) -> str:
    """A few digits that a name always has, whatever else a table shows."""
    return f"#{crc32(name.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"


def is_printed_as(label: str) -> Callable[[str], bool]:
    """Test of names by what a table may print for them."""
    regex = re.compile(".*".join(map(re.escape, label.split(CUT))))
    is_told = _DOT.strip() in label or CUT in label

    def test(name: str) -> bool:
        short = name_label(name, width=_UNCUT)
        tells = (*_WORD.findall(name), _mark(name)) if is_told else ()
        return regex.fullmatch(short) is not None or any(
            regex.fullmatch(f"{short}{_DOT}{tell}") for tell in tells
        )

    return test
