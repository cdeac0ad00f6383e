"""Small malformed traces. Comments name the issues in which users reported each defect."""

from __future__ import annotations

import gzip
from pathlib import Path

_HEAD = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n'
_TAIL = b'\n], "traceName": "t.json"}\n'
_KERNEL = (
    b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":100.000,"dur":5.000,'
    b'"args":{"correlation":1,"stream":7,"device":0}}'
)


def _event(name: bytes = b"op", extra: bytes = b"") -> bytes:
    return (
        b'{"ph":"X","cat":"cpu_op","name":"' + name + b'","pid":1,"tid":1,"ts":10.000,"dur":1.000,'
        b'"args":{"External id":1' + extra + b"}}"
    )


def _kernel(*changes: tuple[bytes, bytes]) -> bytes:
    event = _KERNEL
    for was, becomes in changes:
        event = event.replace(was, becomes)
    return event


def _file(*events: bytes) -> bytes:
    return _HEAD + b",\n".join(events) + _TAIL


_OK = _file(_KERNEL)
_PACKED = gzip.compress(_OK * 50, mtime=0)

MALFORMED = {
    "ok.json": _OK,
    # pytorch#146900, kineto#1459
    "unescaped_quote.json": _file(_event(b'{"device": "cpu"}(12): run'), _KERNEL),
    # pytorch#113001
    "newline_in_name.json": _file(_event(b"lib = Library(\n(1): <module>"), _KERNEL),
    # perfetto#598, pytorch#130622
    "control_char_name.json": _file(_event(b"|||S\x01(1): <module>"), _KERNEL),
    # pytorch#98432
    "raw_backslash_path.json": _file(_event(b"torch\\cuda\\__init__.py(219)"), _KERNEL),
    # pytorch#136180, kineto#80
    "invalid_utf8.json": _file(_event(b"config.py(0): \xff\xfe"), _KERNEL),
    # kineto#105
    "inf_bandwidth.json": _file(_event(extra=b',"memory bandwidth (GB/s)": inf')),
    "nan_arg.json": _file(_event(extra=b',"x": NaN, "y": -Infinity')),
    # kineto#619
    "bare_hex.json": _file(_event(extra=b',"src": 0x7f162bc09600')),
    "trailing_comma.json": _HEAD + _KERNEL + b"," + _TAIL,
    # trace-viewer#145, speedscope#204, bazel#11863
    "truncated.json": _HEAD + _KERNEL + b",\n" + _event()[:40],
    "truncated_clean.json": _HEAD + _KERNEL + b",\n" + _event(),
    # TensorRT-LLM#13536
    "interleaved_ranks.json": _HEAD + _KERNEL + b",\n" + _event()[:30] + _OK,
    # pytorch#95460
    "bare_array.json": b"[" + _KERNEL + b"," + _event() + b"]",
    "bare_array_open.json": b"[\n" + _KERNEL + b",\n" + _event() + b",\n",
    # HTA#337
    "metadata_only.json": _file(b'{"ph":"M","name":"process_name","pid":0,"args":{"name":"x"}}'),
    # HTA#111
    "no_traceEvents.json": b'{"schemaVersion":1}',
    "empty.json": b"",
    "bom.json": b"\xef\xbb\xbf" + _OK,
    # HTA#324: more than int64 holds
    "uint64_comms_id.json": _file(_event(extra=b',"Comms Id": 16253213563157461241')),
    # Ascend#133
    "ts_string.json": _file(_kernel((b"100.000", b'"1666382280874284.123"'))),
    # kineto#910, kineto#919
    "absolute_ns_ts.json": _file(_kernel((b"100.000", b"1716299299443212.345"))),
    # perfetto#886, perfetto#738, perfetto#522
    "int_overflow_pid.json": _file(_kernel((b'"tid":7', b'"tid":139627874611776'))),
    # kineto#1002
    "negative_tid.json": _file(_kernel((b'"tid":7', b'"tid":-1340312064'))),
    # kineto#109, HTA#170
    "string_tid_stream.json": _file(
        _kernel((b'"tid":7', b'"tid":"stream 7"'), (b'"stream":7', b'"stream":"7"'))
    ),
    # kineto#646
    "negative_dur.json": _file(_kernel((b"5.000", b"-5.000"))),
    # HTA#325: 236 years
    "huge_dur.json": _file(_kernel((b"5.000", b"7447424400000000.0"))),
    # pytorch#188481
    "zero_ts_half.json": _file(_KERNEL, _kernel((b"100.000", b"0.000"), (b"5.000", b"0.000"))),
    # perfetto#4280: programmatic dependent launch
    "partial_overlap_stream.json": _file(
        _kernel((b"5.000", b"3.776")), _kernel((b"100.000", b"102.000"), (b"5.000", b"4.000"))
    ),
    "dup_key.json": _file(_kernel((b'"pid":0', b'"pid":0,"pid":1'))),
    "truncated.json.gz": _PACKED[: len(_PACKED) // 2],
    "gz_named_json.json": gzip.compress(_OK, mtime=0),
    "json_named_gz.json.gz": _OK,
}
"""The bytes of each file, by its name."""


def written(folder: Path) -> Path:
    """The folder, with all of them."""
    for name, data in MALFORMED.items():
        (folder / name).write_bytes(data)
    return folder
