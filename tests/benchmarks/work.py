"""Work from load to report on a fixed trace, counted: ``python -m tests.benchmarks.work``.

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
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from htagraph.arrays import objects, passes

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

ALLOCATED = ctypes.c_int64(0)
_COUNTED = """
declare ptr @malloc(i64)
declare ptr @calloc(i64, i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)

define void @add(i64 %n) {
  %1 = atomicrmw add ptr inttoptr (i64 ADDRESS to ptr), i64 %n monotonic
  ret void
}

define ptr @counted_malloc(ptr %context, i64 %size) {
  call void @add(i64 %size)
  %new = call ptr @malloc(i64 %size)
  ret ptr %new
}

define ptr @counted_calloc(ptr %context, i64 %n, i64 %size) {
  %all = mul i64 %n, %size
  call void @add(i64 %all)
  %new = call ptr @calloc(i64 %n, i64 %size)
  ret ptr %new
}

define ptr @counted_realloc(ptr %context, ptr %old, i64 %size) {
  call void @add(i64 %size)
  %new = call ptr @realloc(ptr %old, i64 %size)
  ret ptr %new
}

define void @counted_free(ptr %context, ptr %old, i64 %size) {
  call void @free(ptr %old)
  ret void
}
"""
"""No Python: numpy also frees arrays while an exception is on its way."""


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of numpy's C API."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_SET_HANDLER = 304
"""The place of ``PyDataMem_SetHandler`` in the table of numpy's C API; places never change."""


def count_bytes() -> None:
    """Let numpy's arrays count, in this thread; arrays keep the handler, so it stays until the end.

    The process must leave by `os._exit`: its last arrays are freed when there is no Python.
    """
    address = str(ctypes.addressof(ALLOCATED))
    module = llvm.parse_assembly(_COUNTED.replace("ADDRESS", address))
    engine = llvm.create_mcjit_compiler(module, objects.target_machine())
    engine.finalize_object()
    names = ("malloc", "calloc", "realloc", "free")
    functions = [engine.get_function_address(f"counted_{name}") for name in names]
    handler = _Handler(b"counting", 1, None, *functions)
    python = ctypes.pythonapi
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    python.PyCapsule_New.restype = ctypes.py_object
    table = python.PyCapsule_GetPointer(np._core.multiarray._ARRAY_API, None)
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    set_handler(python.PyCapsule_New(ctypes.addressof(handler), b"mem_handler", None))
    _KEPT.extend((handler, engine))


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
    EXECUTED.value = ALLOCATED.value = 0
    with _calls_counted():
        result = call(*arguments)
    return result, COUNTS | {"instructions": EXECUTED.value, "bytes": ALLOCATED.value}


def work(content: bytes) -> dict[str, dict[str, int]]:
    """The counts of each stage, of a second run: the first one imports and compiles."""
    import htagraph as hg
    from htagraph.reports.json_document import json_document
    from htagraph.reports.page import write_page

    def path(graph: Any) -> None:
        assert graph.critical_path().segments["dur_ns"].sum() == graph.dur_ns

    def report(trace: Any, graph: Any) -> None:
        summary = hg.Summary(trace, graph)
        json_document(summary)
        with TemporaryDirectory() as folder:
            write_page(Path(folder) / "page.html", summary)

    for _ in range(2):
        trace, of_load = counted(hg.load, content)
        graph, of_compile = counted(trace.compile)
        _, of_path = counted(path, graph)
        _, of_verdict = counted(graph.verdict)
        _, of_report = counted(report, trace, graph)
    return {
        "load": of_load,
        "compile": of_compile,
        "path": of_path,
        "verdict": of_verdict,
        "report": of_report,
    }


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
