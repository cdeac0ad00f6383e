"""Functions as machine code: `arguments` (how Python hands them over), `lowering` (numba makes
LLVM's bitcode of them), `objects` (LLVM makes machine code of that), `kept` (where it lies).

Only `lowering` needs numba, and only where nobody has lowered a function before: a wheel brings its
bitcode along, and a machine keeps its machine code.
"""
