"""Work of load, compile and path on a fixed trace, counted: ``python -m tests.benchmarks.work``.

Time differs between machines, and between a quiet moment and a busy one; these counts do not:

- *instructions* of compiled passes: each basic block of their LLVM code is made to add its number
  of instructions. One of a vector counts once for each of its words, so that machines with wide
  vectors count as others do.
- *bytes* of new arrays of numpy, which a memory handler of numpy sees.
- *sorted*: elements that numpy sorts, by all keys.
- *calls*: Python functions that are called, and functions in C that they call.

Each has a price in nanoseconds, about what it takes. The sum is the *work* of a stage: it follows
CPU time well enough to see a fifth more, and a pass that moves from numpy into compiled code shows
as the gain that it is. What it cannot see: a call of numpy or pandas that allocates the same and
takes longer.

``--write`` notes the work as the new baseline. `tests/benchmarks/test_work.py` compares with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from htagraph.native import objects, passes

BASELINE = Path(__file__).with_name("work.json")
PRICES_NS = {"instructions": 0.1, "bytes": 0.12, "sorted": 12.0, "calls": 100.0}
COUNTS = dict.fromkeys(PRICES_NS, 0)
_STEPS, _LAYERS = 100, 12

# Compiled passes

EXECUTED = ctypes.c_int64(0)
_ADDS = f"atomicrmw add ptr inttoptr (i64 {ctypes.addressof(EXECUTED)} to ptr), i64 {{}} monotonic"
_VECTOR = re.compile(r"<(\d+) x [a-z]+(\d*)>")
_LABEL = re.compile(r'^[\w$.-]+:|^"[^"]+":')


def n_words(instruction: str) -> int:
    """How many words of 64 bits an instruction works on at once: more than one for vectors."""
    sizes = (int(n) * int(bits or 64) // 64 for n, bits in _VECTOR.findall(instruction))
    return max([1, *sizes])


def counted_assembly(text: str) -> str:
    """LLVM assembly whose blocks add up what they execute."""
    lines: list[str] = []
    block: list[str] | None = None

    def close(block: list[str]) -> None:
        n_phi = sum(" = phi " in line for line in block)
        weight = sum(
            n_words(line)
            for line in block[n_phi:]
            if line.startswith("  ") and not line.startswith("    ")
        )
        lines.extend(block[:n_phi])
        # Unnamed values are numbered in order, and this one must not take a number.
        lines.append(f"  %work.{len(lines)} = {_ADDS.format(weight)}")
        lines.extend(block[n_phi:])

    for line in text.splitlines():
        if line.startswith("define "):
            lines.append(line)
            block = []
        elif block is not None and (line == "}" or _LABEL.match(line)):
            if block:
                close(block)
            lines.append(line)
            block = None if line == "}" else []
        elif block is not None:
            if line.strip():
                block.append(line)
        else:
            lines.append(line)
    return "\n".join(lines)


def count_instructions() -> None:
    """Let compiled passes count, in this process."""
    plain = objects.object_code

    def counted_code(bitcode: bytes) -> bytes:
        objects.target_machine()
        text = counted_assembly(str(llvm.parse_bitcode(bitcode)))
        return plain(llvm.parse_assembly(text).as_bitcode())

    def machine_code(function: Callable[..., Any], forms: Any, sources: Any) -> Any:
        name = passes._name(function, forms, sources)
        return objects.callable_of(passes._made(function, forms, f"{name}.bc"))

    objects.object_code = counted_code
    passes._machine_code = machine_code


# Arrays of numpy

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MALLOC = ctypes.CFUNCTYPE(_POINTER, _POINTER, _SIZE)
_CALLOC = ctypes.CFUNCTYPE(_POINTER, _POINTER, _SIZE, _SIZE)
_REALLOC = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)
_FREE = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _SIZE)


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of numpy's C API."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", _POINTER),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


_SET_HANDLER = 304
"""The place of ``PyDataMem_SetHandler`` in the table of numpy's C API; places never change."""


def count_bytes() -> None:
    """Let numpy's arrays count, in this thread; arrays keep the handler, so it stays until the end.

    The process must leave by `os._exit`: its last arrays are freed when there is no Python.
    """
    c = ctypes.CDLL(None)
    for name, arguments in (("malloc", [_SIZE]), ("calloc", [_SIZE] * 2)):
        getattr(c, name).argtypes, getattr(c, name).restype = arguments, _POINTER
    c.realloc.argtypes, c.realloc.restype = [_POINTER, _SIZE], _POINTER
    c.free.argtypes, c.free.restype = [_POINTER], None

    def malloc(_: int, size: int) -> int:
        COUNTS["bytes"] += size
        return c.malloc(size)

    def calloc(_: int, number: int, size: int) -> int:
        COUNTS["bytes"] += number * size
        return c.calloc(number, size)

    def realloc(_: int, old: int, size: int) -> int:
        COUNTS["bytes"] += size
        return c.realloc(old, size)

    def free(_: int, old: int, _size: int) -> None:
        c.free(old)

    handler = _Handler(
        b"counting", 1, None, _MALLOC(malloc), _CALLOC(calloc), _REALLOC(realloc), _FREE(free)
    )
    python = ctypes.pythonapi
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    python.PyCapsule_GetPointer.restype = _POINTER
    python.PyCapsule_New.argtypes = [_POINTER, ctypes.c_char_p, _POINTER]
    python.PyCapsule_New.restype = ctypes.py_object
    table = python.PyCapsule_GetPointer(np._core.multiarray._ARRAY_API, None)
    address = ctypes.cast(table, ctypes.POINTER(_POINTER))[_SET_HANDLER]
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    set_handler(python.PyCapsule_New(ctypes.addressof(handler), b"mem_handler", None))
    _KEPT.append(handler)


_KEPT: list[Any] = []

# Calls


_SORTS = {"sort", "argsort", "partition", "argpartition"}
_OWN = str(Path(__file__).resolve().parents[2] / "htagraph")


def _note(frame: FrameType, event: str, called: Any) -> None:
    """Count a call that the package makes, and what numpy sorts for whomever."""
    if event == "c_call" and getattr(called, "__name__", "") in _SORTS:
        array = getattr(called, "__self__", None)
        COUNTS["sorted"] += array.size if isinstance(array, np.ndarray) else 0
    if event in {"call", "c_call"} and frame.f_code.co_filename.startswith(_OWN):
        COUNTS["calls"] += 1


@contextmanager
def _calls_counted() -> Iterator[None]:
    """Count calls in a block; sorts by several keys, which show no array, too."""
    plain = np.lexsort

    def lexsort(keys: Any, axis: int = -1) -> Any:
        COUNTS["sorted"] += sum(np.size(key) for key in keys)
        return plain(keys, axis)

    np.lexsort = lexsort
    threading.setprofile(_note)
    sys.setprofile(_note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        np.lexsort = plain


# All of it


def counted(call: Callable[..., Any], *arguments: Any) -> tuple[Any, dict[str, int]]:
    """What a call returns, and its counts."""
    COUNTS.update(dict.fromkeys(COUNTS, 0))
    EXECUTED.value = 0
    with _calls_counted():
        result = call(*arguments)
    return result, COUNTS | {"instructions": EXECUTED.value}


def work(content: bytes) -> dict[str, dict[str, int]]:
    """The counts of each stage, of a second run: the first one imports and compiles."""
    import htagraph as hg

    def path(graph: Any) -> None:
        assert graph.critical_path().segments["dur_ns"].sum() == graph.dur_ns

    for _ in range(2):
        trace, of_load = counted(hg.load, content)
        graph, of_compile = counted(trace.compile)
        _, of_path = counted(path, graph)
    return {"load": of_load, "compile": of_compile, "path": of_path}


def price_ns(counts: dict[str, int]) -> int:
    """The work of a stage as one number."""
    return round(sum(PRICES_NS[name] * count for name, count in counts.items()))


def main() -> None:
    """Print the work of each stage as JSON; with `--write`, note it."""
    from tests.synth.simulator import simulate
    from tests.synth.training import training_rank

    content = simulate(training_rank(steps=_STEPS, layers=_LAYERS, seed=1)).to_json()
    count_instructions()
    count_bytes()
    counted = work(content)
    found = {name: {"work_ns": price_ns(counts), **counts} for name, counts in counted.items()}
    text = json.dumps(found, indent=1)
    if "--write" in sys.argv:
        BASELINE.write_text(text + "\n")
    print(text, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
