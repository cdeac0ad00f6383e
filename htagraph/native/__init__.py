"""Functions as machine code.

`lowering`: Python to LLVM bitcode, by numba; `objects`: bitcode to machine code, by LLVM;
`code_cache`: both on disk; `passes`: all of it at a first call; `arguments`: how Python passes
them; `inner`: functions that only compiled functions call. `memory`: what is kept when freed.

Only `lowering` needs numba, and only in a checkout: a wheel contains the bitcode.
"""
