"""Large traces made of a real one: ``python -m tests.benchmarks.tiles FOLDER 20 100 500 1400``.

Copies of a trace follow each other in time until they have the requested size, in megabytes of raw
JSON. Every copy is shifted in time and gets ids of its own, so that nothing is linked across
copies; all else stays as the profiler wrote it. Nothing is written into the repository: give a
folder outside.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from tests.public_traces import FOLDER

SOURCE = FOLDER / "hta/nccl_parser_config/nccl_data.json.gz"
_LIST = b'"traceEvents": ['
_LIST_END = re.compile(rb'\}\s*\],\s*"')
_NUMBER = re.compile(
    rb'("(ts|id|correlation|External id|Ev Idx|Sequence number|Record function id)": )(\d+)'
)


def tiles(source: Path, n_bytes: int) -> Iterator[bytes]:
    """The bytes of a trace of about a size."""
    text = gzip.decompress(source.read_bytes())
    start = text.index(_LIST) + len(_LIST)
    end = _LIST_END.search(text, start).start() + 1
    head, body, tail = text[:start], text[start:end], text[end:]
    pieces = _NUMBER.split(body)  # literal, key with colon, key, number, literal …
    literals = [a + b for a, b in zip(pieces[0:-1:4], pieces[1::4], strict=True)]
    keys, numbers = pieces[2::4], [int(number) for number in pieces[3::4]]
    times = [number for key, number in zip(keys, numbers, strict=True) if key == b"ts"]
    span = max(times) - min(times) + 1000
    step = [span if key == b"ts" else 1_000_000 for key in keys]
    yield head
    n_tiles = max(round(n_bytes / len(body)), 1)
    for tile in range(n_tiles):
        shifted = zip(literals, numbers, step, strict=True)
        yield b"".join(b"%b%d" % (literal, number + tile * by) for literal, number, by in shifted)
        yield pieces[-1] + (b"," if tile < n_tiles - 1 else b"")
    yield tail


def write_tiled(folder: Path, megabytes: int, source: Path = SOURCE) -> Path:
    """A trace of about a size; it is written unless it is there already."""
    path = folder / f"tiled_{megabytes}MB.json.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        with gzip.open(partial, "wb", compresslevel=4) as file:
            for chunk in tiles(source, megabytes * 1_000_000):
                file.write(chunk)
        partial.replace(path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("megabytes", type=int, nargs="+")
    asked = parser.parse_args()
    for size in asked.megabytes:
        print(write_tiled(asked.folder, size))
