"""What the package answers on real traces, kept to compare with: ``python -m tests.answers``.

``--write FILE`` keeps the answers, ``--against FILE`` prints how they differ now, and
``python -m tests.answers FOLDER …`` takes the traces of other folders: without, the
captures in this repository and the public traces that are here. An answer is the JSON document of a
report, without its sentences, and checksums of the edges and of the path. Run it before and after a
change that must change no answer. Traces on one side only are not compared.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import htagraph as hg
from htagraph.errors import HTAGraphError
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES, traces_in

SENTENCES = frozenset(
    [
        "title",
        "to_try",
        "caveats",
        "sentence",
        "consequence",
        "detail",
        "check",
        "withheld",
        "left_out",
        "meaning",
    ]
)
"""Keys of the document that hold words for people: these may be written better."""

Answer = dict[str, Any]


def sources(folder: Path) -> Iterator[Path]:
    """The traces and Nsight Systems exports in a folder, then its folders of several traces."""
    traces = traces_in(folder)
    yield from traces
    yield from sorted(folder.rglob("*.sqlite"))
    parents = [trace.parent for trace in traces]
    yield from sorted({parent for parent in parents if parents.count(parent) > 1})


def answer(source: Path) -> Answer:
    """The document of a report, and checksums of the edges and the path of one trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = _plain(hg.report(source, write=False).document)
            if source.is_file() and source.suffix != ".sqlite":
                graph = hg.load(source).compile()
                path = graph.critical_path()
                ends = graph.edges[["tail_event", "head_event", "lag_ns", "slack_ns"]]
                found["edges"] = _checksum(ends.to_numpy(np.int64))
                found["path"] = _checksum(path.durations_ns, np.asarray(path.bounds))
        except HTAGraphError as error:
            return {"error": type(error).__name__}
    return found


def answers(folders: list[Path], n_processes: int = 2) -> dict[str, Answer]:
    """The answers on all traces of some folders."""
    found = [(folder, source) for folder in folders for source in sources(folder)]
    with ProcessPoolExecutor(n_processes) as pool:
        answered = pool.map(answer, [source for _, source in found])
        names = [f"{folder.name}/{source.relative_to(folder)}" for folder, source in found]
        return dict(zip(names, answered, strict=True))


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Where two answers differ, a line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{where}[{place}]")
    elif before != after:
        yield f"{where}: {_short(before)} -> {_short(after)}"


def _plain(value: Any) -> Any:
    """A document without its sentences and file names."""
    if isinstance(value, dict):
        return {
            key: _plain(item)
            for key, item in value.items()
            if key not in SENTENCES and key not in ("file", "files", "path")
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _checksum(*columns: Any) -> str:
    """Of some arrays."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update(column.tobytes())
    return digest.hexdigest()[:16]


def _short(value: Any) -> str:
    """A value on part of a line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def main() -> int:
    """Write answers, or compare with those that were written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[CAPTURES, FOLDER])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    now = json.loads(json.dumps(answers(asked.folders, asked.processes), default=str))
    if asked.write:
        asked.write.write_bytes(gzip.compress(json.dumps(now).encode()))
    if not asked.against:
        return 0
    before = json.loads(gzip.decompress(asked.against.read_bytes()))
    both = sorted(before.keys() & now.keys())
    lines = list(differences(*({name: side[name] for name in both} for side in (before, now))))
    print(*lines, f"{len(lines)} differences in {len(both)} answers", sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
