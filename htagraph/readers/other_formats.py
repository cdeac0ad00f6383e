"""Files of other profilers that htagraph does not read: what they are, and which tool reads them.

They are recognized by their first bytes, and by their names where these tell nothing. Nothing is
unpickled: a pickle runs the code that it names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, NoReturn

from htagraph.errors import TraceFormatError
from htagraph.readers.content import first_bytes
from htagraph.readers.rank_paths import file_of

__all__ = ["FROM_ROCM", "OtherFormat", "is_other_format", "other_format", "refuse_other_format"]

_HEAD = 1 << 12
"""First bytes in which a format shows (chosen): the name of the first plane, or the first keys."""


class OtherFormat(NamedTuple):
    """A format that is not read.

    Parameters
    ----------
    name : str
        With its article, for a sentence.
    hint : str
        Which tool reads it, or how to get a file that htagraph reads.
    content : re.Pattern of bytes
        Matches the beginning.
    suffixes : tuple of str
        Of names, for files whose beginning tells nothing.
    """

    name: str
    hint: str
    content: re.Pattern[bytes]
    suffixes: tuple[str, ...] = ()


FROM_ROCM = (
    "`rocpd convert -i FILE --output-format pftrace` (rocprofv3) or `rpd2tracing.py FILE OUT.json` "
    "(rocmProfileData) writes a trace that is read here."
)
"""How to get a trace from a database of ROCm."""

_PICKLE = rb"\x80[\x02-\x05]"
_FORMATS = (
    OtherFormat(
        "a memory snapshot of PyTorch",
        "open it at https://pytorch.org/memory_viz.",
        re.compile(_PICKLE + rb".*?\b(segments|device_traces)", re.DOTALL),
    ),
    OtherFormat(
        "a flight recorder dump of PyTorch",
        "`torchfrtrace` reads the dumps of all ranks.",
        re.compile(
            _PICKLE + rb".*?(pg_config|collective_seq_id|nccl_comm)"
            rb'|\s*\{(?!.*"traceEvents").*?"(pg_config|collective_seq_id)"\s*:',
            re.DOTALL,
        ),
    ),
    OtherFormat(
        "a pickle",
        "it may be a memory snapshot (https://pytorch.org/memory_viz) or a flight recorder dump "
        "(`torchfrtrace`) of PyTorch.",
        re.compile(_PICKLE),
        (".pickle", ".pkl"),
    ),
    OtherFormat(
        "an XPlane of XProf (JAX, TensorFlow)",
        "TensorBoard with XProf opens it; the *.trace.json.gz in its folder is read here.",
        re.compile(
            rb"\x0a[\x00-\xff]{1,6}(\x08[\x00-\xff]{1,10})?"
            rb"\x12[\x01-\x7f](/host:|/device:|/job:|Task Environment)"
        ),
        (".xplane.pb", ".xplane.pb.gz"),
    ),
    OtherFormat(
        "a report of Nsight Compute",
        "`ncu --import FILE --csv --page raw > FILE.csv` writes a table, which --beside adds to a "
        "trace.",
        re.compile(rb"NVR\x00"),
        (".ncu-rep", ".ncu-repz"),
    ),
    OtherFormat(
        "a database of ROCm",
        FROM_ROCM,
        re.compile(rb"(?!)"),  # its tables tell: the reader of SQLite names it
        (".rpd",),
    ),
    OtherFormat(
        "a Chakra execution trace in protobuf",
        "the tools of Chakra read it; the PyTorch execution trace (.json) that it was made from is "
        "added by --beside.",
        re.compile(rb"[\x07-\x7f][\x01]?\x0a[\x03-\x10]v?\d+\.\d+(\.\d+)?"),
        (".et",),
    ),
)
_TEXT = (b"{", b"[")
"""With these begins JSON, whatever its name."""


def other_format(source: str | Path | bytes) -> OtherFormat | None:
    r"""The format of a file, or of its content, that is not read; None for all others.

    Examples
    --------
    >>> other_format(b"\x80\x04\x95\x00}\x94\x8c\x08segments").name
    'a memory snapshot of PyTorch'
    >>> other_format(b'{"traceEvents": []}') is None
    True
    """
    path = None if isinstance(source, bytes) else file_of(Path(source))
    head = first_bytes(source if path is None else path, _HEAD)
    if (found := next((one for one in _FORMATS if one.content.match(head)), None)) is not None:
        return found
    if path is None or head.lstrip().startswith(_TEXT):
        return None
    return next((one for one in _FORMATS if path.name.endswith(one.suffixes)), None)


def is_other_format(source: str | Path | bytes) -> bool:
    """Whether a file, or its content, is of a format that is not read."""
    return other_format(source) is not None


def refuse_other_format(source: str | Path | bytes, **_options: object) -> NoReturn:
    """Raise, with the name of the format and the tool that reads it."""
    found = other_format(source)
    assert found is not None
    path = None if isinstance(source, bytes) else source
    raise TraceFormatError(
        f"this is {found.name}, which htagraph does not read.", path=path, hint=found.hint
    )
