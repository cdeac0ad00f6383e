"""Reads traces of PyTorch's profiler (Kineto): ``.json`` and ``.json.gz``, as found in the wild.

The path of the bytes: `byte_stream` (decompressed blocks) -> `pieces` -> `trace_document` (header
and events) -> `worker` (one thread) -> `compiled.scanner` (columns; `lexer`, `keys`,
`event_values`, `interning`) -> `merging` -> `cleaning` -> `event_table`. What the scanner rejects
goes through `compiled.repairer`. Memory: about 140 bytes per event, plus a few megabytes for the
pieces being scanned, whatever the size of the file.
"""
