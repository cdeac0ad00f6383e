"""One way in: what was chosen among the files that a user names is opened, a trace or a job."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from htagraph.errors import IncompleteTraceWarning
from htagraph.model.units import human_size
from htagraph.readers.captures import Chosen
from htagraph.readers.memory_need import exceeds_memory, needed_bytes
from htagraph.run.compiled import Compiled, LoadOptions, compiled
from htagraph.run.trace import is_kineto, load

if TYPE_CHECKING:
    from htagraph.job.job import Job


def opened(
    files: Chosen,
    reading: LoadOptions,
    *,
    beside: Sequence[Path] = (),
    window: str = "",
    executor: Executor | None = None,
    cache: Path | None = None,
) -> Compiled | Job:
    """A trace and its graph, or the job of several; ranks that cannot be used are reported.

    Of a trace larger than memory, `window` and as much before and after it is read; else the caller
    takes the window. `beside`: of all ranks.
    """
    files.said()
    if len(files.paths) > 1:
        from htagraph.job.loading import loaded  # noqa: PLC0415  deferred: only for jobs

        return loaded(
            files, reading, beside=beside, executor=executor, on_error="skip", cache=cache
        )
    [file] = files.paths
    near = (*files.beside.get(file, ()), *beside)
    if window and is_too_large(file):
        kept = "" if cache else " HTAGRAPH_GRAPH_CACHE=FOLDER keeps what is read."
        warnings.warn(
            f"{file.name} needs about {human_size(needed_bytes(file))} of memory: only {window} is "
            f"read, and as much before and after it.{kept}",
            IncompleteTraceWarning,
            stacklevel=2,
        )
        part = load(file, stacks=bool(reading.stacks), window=window, beside=near, cache=cache)
        found = Compiled(part, reading.compiled(part))
    else:
        found = compiled(file, near, reading, folder=cache)
    if files.is_rest and (n_ranks := found.trace.world_size or 1) > 1:
        said = f"1 of {n_ranks} ranks is here: {file.name}."
        warnings.warn(said, IncompleteTraceWarning, stacklevel=2)
    return found


def is_too_large(file: Path) -> bool:
    """Whether a trace needs more memory than there is, and can be read in parts."""
    return exceeds_memory(file) and is_kineto(file)
