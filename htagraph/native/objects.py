"""From LLVM's bitcode to machine code of this machine, and from that to something to call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

__all__ = ["ENTRY", "PROVIDED", "callable_of", "machine_name", "object_code", "target_machine"]

ENTRY = "htagraph_pass"
"""The name of the function in its bitcode: it takes the address of its words, twice."""

PROVIDED = {"memcpy": ctypes.memmove, "memmove": ctypes.memmove, "memset": ctypes.memset}
"""What machine code may call, where the process does not show it."""

_LOADED: list[Any] = []
"""Machine code stays where it is until the process ends."""


def machine_name() -> str:
    """What machine code depends on beside its bitcode."""
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return f"{llvmlite.__version__} {llvm.get_process_triple()} {cpu} {features}"


@cache
def target_machine() -> Any:  # llvmlite's target machine
    """The machine at hand, as LLVM sees it."""
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
    """The machine code of some bitcode; a RuntimeError where this LLVM cannot read it."""
    machine = target_machine()
    module = llvm.parse_bitcode(bitcode)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    return bytes(machine.emit_object(module))


def callable_of(code: bytes) -> Callable[[int, int], None]:
    """The function in some machine code; it runs without the GIL."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LOADED.append(engine)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        engine.get_function_address(ENTRY)
    )
