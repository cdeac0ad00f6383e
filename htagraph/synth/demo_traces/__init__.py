"""Small traces in the package, each with a known fault."""

from __future__ import annotations

from pathlib import Path

from htagraph.errors import QueryError, one_of

__all__ = ["demo_trace"]

_FOLDER = Path(__file__).parent
_SUFFIX = ".pt.trace.json.gz"


def demo_trace(name: str) -> Path:
    """Path of a small trace in the package.

    Parameters
    ----------
    name : str
        Training steps with a fault: ``dataloader``, ``sync_in_loop``, ``small_kernels``,
        ``exposed_allreduce``, ``synchronous_copy``, or ``none``. ``job``: a folder of four ranks,
        of which rank 2 is late. ``serving``: an LLM that decodes with CUDA graphs. ``compiled``:
        training under ``torch.compile`` that compiles again. All of these are simulated.
        ``captured``: ``docs/train.py`` on a CPU, by PyTorch 2.13; loading a batch sleeps 40 ms.

    Returns
    -------
    Path
        Of a file, or of the folder of a job.

    Raises
    ------
    QueryError
        If no demo trace has this name.

    Examples
    --------
    >>> import htagraph as hg
    >>> hg.load(hg.demo_trace("dataloader")).compile()
    TraceGraph(rank=0, 507 events, 1,134 edges, 3 steps, 23.8 ms)
    """
    path = _FOLDER / ("job" if name == "job" else f"{name}{_SUFFIX}")
    if not path.exists():
        known = [file.name.removesuffix(_SUFFIX) for file in sorted(_FOLDER.glob(f"*{_SUFFIX}"))]
        raise QueryError(f"there is no demo trace {name!r}.", hint=one_of(name, [*known, "job"]))
    return path
