"""Whether a trace fits into memory, as far as its size tells."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from htagraph.readers.byte_stream import ByteStream
from htagraph.readers.storage import is_file, is_remote, n_bytes_of

_PER_BYTE = 1.9
"""Peak memory of a report by byte of text: 2.6 GB for 1.4 GB (`docs/speed.md`)."""

_FROM = 1 << 24
"""Compressed size up to which a trace fits anywhere (chosen)."""

_SAMPLE = 1 << 22
"""Bytes of text that tell how well a file is compressed (chosen)."""

_LIBRARIES = 7 << 28
"""Addresses that libraries and threads take without using memory. Measured."""

_GROUPS = ("memory.max", "memory/memory.limit_in_bytes")
"""Where Linux keeps the limit of a container."""


def needed_bytes(path: Path) -> int:
    """Memory that a report on a Kineto file takes, about."""
    with closing(ByteStream(path)) as stream:
        size = stream.n_compressed
        if not stream.is_gzip:
            return int(_PER_BYTE * size)
        while stream.n_read < _SAMPLE and stream.read(_SAMPLE):
            pass
        ratio = stream.n_read / max(stream.n_packed, 1)
    return int(_PER_BYTE * size * ratio)


def free_bytes() -> int:
    """Memory that this process may take: of the machine, its container and its limits."""
    found = [1 << 62]
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    for name in _GROUPS:
        with suppress(OSError, ValueError):  # "max": no limit
            found.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    with suppress(ImportError):  # Windows
        import resource  # noqa: PLC0415

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        found += [max(soft - _LIBRARIES, 0)] if soft != resource.RLIM_INFINITY else []
    return min(found)


def exceeds_memory(path: Path) -> bool:
    """Whether a file is too large to be read as a whole; false for what is not on disk."""
    if is_remote(path) or not is_file(path) or n_bytes_of(path) < _FROM:
        return False
    return needed_bytes(path) > free_bytes()
