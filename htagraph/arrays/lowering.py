"""From Python to LLVM bitcode, by numba. Takes seconds; a wheel contains the bitcode.

Functions allocate nothing and raise nothing, so the bitcode runs without numba's runtime.
Reference counting is off (``_nrt``), so passing an array is free: the scanner is six times as fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from htagraph.arrays.arguments import Form, n_results_of, wrapper_source
from htagraph.arrays.inner import INNER
from htagraph.arrays.objects import ENTRY, PROVIDED, target_machine

_RAISING = ("Py", "_Py", "numba_")
"""Prefixes of the functions that code calls to raise."""

_OPTIONS = {"nogil": True, "_nrt": False, "error_model": "numpy"}
_INNER = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def lowered(function: Callable[..., Any], forms: tuple[Form, ...]) -> bytes:
    """The bitcode of a function for arguments of some forms."""
    source, names, arrays = wrapper_source(forms, n_results_of(function))
    namespace = names | {"function": _dispatcher(function)}
    namespace |= {name: _array_at(*array) for name, array in arrays.items()}
    exec(source, namespace)  # noqa: S102 - our own text, of types only
    signature = types.void(types.CPointer(types.int64), types.CPointer(types.float64))
    wrapper = numba.cfunc(signature, **_OPTIONS)(namespace["wrapper"])
    module = llvm.parse_assembly(wrapper.inspect_llvm())
    module.get_function(wrapper.native_name).name = ENTRY
    bitcode: bytes = _closed(module).as_bitcode()
    return bitcode


def _closed(module: Any) -> Any:  # llvmlite's module
    """A module without undefined symbols: calls that would raise end the process.

    Code that the entry point does not reach is removed.
    """
    foreign = [
        function.name
        for function in module.functions
        if function.is_declaration and not function.name.startswith("llvm.")
    ]
    called = [name for name in foreign if not name.startswith(_RAISING) and name not in PROVIDED]
    assert not called, f"compiled functions must not allocate or call Python: {called}"
    ends = "define void @{}() noreturn nounwind {{ call void @llvm.trap() unreachable }}\n"
    text = "".join(ends.format(name) for name in foreign if name not in PROVIDED)
    module.link_in(llvm.parse_assembly(text + "declare void @llvm.trap()"))
    for function in module.functions:
        if not function.is_declaration and function.name != ENTRY:
            function.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_symbols_pass()
    tuning = llvm.create_pipeline_tuning_options()
    passes.run(module, llvm.create_pass_builder(target_machine(), tuning))
    return module


@cache
def _dispatcher(function: Callable[..., Any]) -> Any:
    """A function and everything it calls, as numba compiles it."""
    how = INNER.get(function, {})
    if callable(how):
        return how()
    names = function.__globals__
    inner = {
        name: _dispatcher(names[name])
        for name in function.__code__.co_names
        if callable(names.get(name)) and names[name] in INNER
    }
    copy = FunctionType(function.__code__, names | inner, function.__name__)
    return numba.njit(**_INNER, **how)(copy)


@cache
def _array_at(dtype: str, n_axes: int) -> Any:
    """Intrinsic that makes a contiguous array from an address and a shape among words."""
    array_type = types.Array(numba.from_dtype(np.dtype(dtype)), n_axes, "C")
    item_size = np.dtype(dtype).itemsize

    @intrinsic  # type: ignore[untyped-decorator]
    def array_at(typing_context: Any, words: Any, position: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            first = builder.gep(arguments[0], [arguments[1]])
            number = ir.IntType(64)
            address, *shape = (
                builder.load(builder.gep(first, [number(k)])) for k in range(1 + n_axes)
            )
            array = context.make_array(array_type)(context, builder)
            array.data = builder.inttoptr(address, array.data.type)
            array.itemsize = number(item_size)
            array.shape = cgutils.pack_array(builder, shape)
            strides = [number(item_size)]
            for length in shape[:0:-1]:
                strides.insert(0, builder.mul(strides[0], length))
            array.strides = cgutils.pack_array(builder, strides)
            array.nitems = functools.reduce(builder.mul, shape)
            return array._getvalue()  # noqa: SLF001 - numba's way

        return array_type(words, types.int64), generate

    return array_at
