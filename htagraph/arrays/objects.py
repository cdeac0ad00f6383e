"""From LLVM bitcode to machine code for this CPU, and from that to a callable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

ENTRY = "htagraph_pass"
"""Name of the entry point. It takes the address of the words twice: as integers, as floats."""

PROVIDED = {"memcpy": ctypes.memmove, "memmove": ctypes.memmove, "memset": ctypes.memset}
"""Functions that machine code may call, for processes that do not export them."""

_LOADED: list[Any] = []
"""Engines own the machine code: if one is collected, its functions crash."""


def machine_name() -> str:
    """What machine code depends on besides its bitcode."""
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return f"{llvmlite.__version__} {llvm.get_process_triple()} {cpu} {features}"


@cache
def target_machine() -> Any:  # llvmlite's target machine
    """The CPU of this machine, as LLVM sees it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, function in PROVIDED.items():
        if llvm.address_of_symbol(name) is None:
            llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        reloc="static" if llvm.get_process_triple().startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


def object_code(bitcode: bytes) -> bytes:
    """The machine code of some bitcode; RuntimeError if this LLVM cannot read it."""
    machine = target_machine()
    module = llvm.parse_bitcode(bitcode)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    return bytes(machine.emit_object(module))


def callable_of(code: bytes) -> Callable[[int, int], None]:
    """The entry point of some machine code. ctypes releases the GIL while it runs."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LOADED.append(engine)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        engine.get_function_address(ENTRY)
    )
