"""Throws broken bytes at the reader of Kineto files.

Inputs are mutations of the malformed files, of small captures and of a trace written here. Each
gives a trace or one of htagraph's errors; a repaired file is valid JSON with equal events.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from functools import cache

from htagraph.errors import HTAGraphError
from htagraph.readers.kineto.reader import read_kineto
from htagraph.readers.kineto.rewriting import repair_kineto
from tests.readers.malformed_files import MALFORMED
from tests.real_traces import CAPTURES

OWN = (
    b'{"schemaVersion": 1, "baseTimeNanoseconds": 7, '
    b'"distributedInfo": {"rank": 3, "world_size": 4}, "traceEvents": [\n'
    b'{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},\n'
    b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, '
    b'"dur": 9.125, "args": {"External id": 4}},\n'
    b'{"ph": "B", "name": "phase", "pid": 1, "tid": 1, "ts": 11}, '
    b'{"ph": "E", "pid": 1, "tid": 1, "ts": 12},\n'
    b'{"ph": "s", "cat": "fwdbwd", "id": 3, "name": "f", "pid": 1, "tid": 1, "ts": 2},\n'
    b'{"ph": "f", "bp": "e", "cat": "fwdbwd", "id": 3, "name": "f", "pid": 1, "tid": 1, "ts": 3},\n'
    b'{"ph": "b", "cat": "c", "id2": {"local": "0x1"}, "name": "a", "pid": 1, "tid": 1, "ts": 4},\n'
    b'{"ph": "e", "cat": "c", "id2": {"local": "0x1"}, "name": "a", "pid": 1, "tid": 1, "ts": 9},\n'
    b'{"ph": "X", "cat": "kernel", "name": "nccl\\u00e9\\n", "pid": 0, "tid": "stream 7", '
    b'"ts": "12.5", "dur": 1e1, '
    b'"args": {"stream": 7, "grid": [1, 2, 3], "est. achieved occupancy %": 31.25, '
    b'"Comms Id": 16253213563157461241}},\n'
    b'{"ph": "C", "name": "GPU 0", "pid": 0, "tid": 0, "ts": 4, '
    b'"args": {"x": [[], {}, true, null]}}\n'
    b'], "traceName": "t.json"}\n'
)
TOKENS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\xff",
    b"\x00",
    b"\n",
    b"0x1f",
    b"NaN",
    b"-Infinity",
    b"\\u12",
]
TOKENS += [
    b'{"ph":"X"',
    b'"traceEvents": [',
    b"1e999",
    b"-",
    b"99999999999999999999999",
    b'"ts": ',
    b"null",
    b"\xef\xbb\xbf",
]
TOKENS += [
    b"[" * 300,
    b'{"a":' * 300,
    b"0" * 400,
    b'"' * 50,
    b'},{"ph":"X","ts":',
    b'"ph":"B",',
    b'"args":{',
    b"\x1f\x8b",
]


@cache
def corpus() -> list[bytes]:
    """What mutations start from."""
    smallest = sorted(CAPTURES.rglob("*.trace.json.gz"), key=lambda path: path.stat().st_size)[:2]
    return [OWN, *MALFORMED.values(), *(gzip.decompress(path.read_bytes()) for path in smallest)]


def mutated(rng: random.Random) -> bytes:
    """Bytes with some damage."""
    out = bytearray(rng.choice(corpus()))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(8)
        if what == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif what == 1:
            del out[at : at + rng.choice((1, 1, 5, 40))]
        elif what in {2, 3}:
            out[at:at] = rng.choice(TOKENS)
        elif what == 4:
            del out[at:]
        elif what == 5:
            a = rng.randrange(len(out) + 1)
            out[at:at] = out[a : a + rng.choice((3, 30, 300))]
        elif what == 6:
            other = rng.choice(corpus())
            a = rng.randrange(len(other) + 1)
            out[at:] = other[a:]
        else:
            out[at : at + 3] = bytes(rng.randrange(256) for _ in range(3))
    if rng.random() < 0.1:
        packed = bytearray(gzip.compress(bytes(out), 1))
        packed[rng.randrange(len(packed))] ^= rng.choice((0, 0, 1, 255))
        out = packed[: rng.randrange(len(packed)) + 1] if rng.random() < 0.3 else packed
    return bytes(out)


def answered(data: bytes) -> str:
    """Read some bytes; return how it went, raise `AssertionError` if that must not be."""
    try:
        trace = read_kineto(data, stacks=True)
    except HTAGraphError as error:
        return type(error).__name__
    assert (trace.events.dur_ns >= 0).all()
    file = io.BytesIO()
    repair_kineto(data, file)
    json.loads(file.getvalue())
    again = read_kineto(file.getvalue(), stacks=True)
    assert trace.events.frame().equals(again.events.frame())
    return "repaired" if trace.repairs else "valid"
