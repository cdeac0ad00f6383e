"""Functions as machine code.

`arguments`: how Python hands them over; `lowering`: numba makes LLVM's bitcode of a function;
`objects`: LLVM makes machine code of that; `kept`: where both lie; `passes`: all of it at a first
call; `inner`: what only machine code calls.

Only `lowering` needs numba, and only where nobody has lowered a function before: a released wheel
brings its bitcode along, and a machine keeps its machine code.
"""
