"""A file as a stream of decompressed bytes, plain or gzip by content, in bounded memory."""

from __future__ import annotations

import io
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from htagraph.errors import TraceError, TraceFormatError, TraceLimitError
from htagraph.model.progress import BYTES, report_progress
from htagraph.readers.defects import Defect
from htagraph.readers.repair_log import RepairLog
from htagraph.readers.storage import is_file, not_found, open_file, size_of

RATIO_FROM = 1 << 28
"""Decompressed bytes from which the compression ratio is checked; smaller files fit in memory."""

MAX_RATIO = 200
"""Largest ratio of decompressed to compressed bytes: real traces have 8 to 30."""

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31
"""zlib's code for "gzip, 32 KiB window"."""

_READ = 1 << 15
"""Compressed bytes read at once (chosen)."""

_SKIPPED = 1 << 20
"""Decompressed bytes that are passed over at once (chosen)."""


class ByteStream:
    """The decompressed bytes of a file, from first to last; it may report progress."""

    def __init__(
        self,
        source: str | Path | bytes,
        log: RepairLog | None = None,
        *,
        reports: bool = False,
    ) -> None:
        self.path = None if isinstance(source, bytes) else Path(source)
        self._log = RepairLog(Defect) if log is None else log
        self._reports = reports
        self._file: BinaryIO = (
            io.BytesIO(source) if isinstance(source, bytes) else _open(Path(source))
        )
        self.n_compressed = size_of(self._file)
        self.n_read = 0
        self._member = 0, 0  # where the gzip member begins: in the file, and decompressed
        self._input = self._block(_READ)
        self._decoder = _gzip_decoder() if self._input.startswith(GZIP_MAGIC) else None
        self.is_gzip = self._decoder is not None
        if self.path is not None and self.n_compressed:
            named_gzip = self.path.suffix.lower() in {".gz", ".gzip"}
            if named_gzip != self.is_gzip:
                self._log.add(Defect.NOT_GZIP if named_gzip else Defect.GZIP_NAME, 0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def n_packed(self) -> int:
        """Bytes of the file that were used up."""
        return self._file.tell() - len(self._input)

    def share(self) -> float:
        """How much of the file is used up, above 0 and up to 1."""
        return max(self.n_packed, 1) / max(self.n_compressed, self.n_packed, 1)

    def read(self, n_bytes: int) -> bytes:
        """Up to `n_bytes`, none at the end."""
        block = self._inflated(n_bytes) if self._decoder is not None else self._plain(n_bytes)
        self.n_read += len(block)
        if (
            self.is_gzip
            and self.n_read > RATIO_FROM
            and self.n_read > MAX_RATIO * max(self._file.tell(), 1)
        ):
            raise TraceLimitError(
                f"the file decompresses to more than {MAX_RATIO} times its size; "
                "this looks like a decompression bomb",
                path=self.path,
                offset=self.n_read,
                hint="if you trust it, decompress it; a plain .json file has no such limit.",
            )
        if self._reports:
            done = min(self._file.tell(), self.n_compressed)
            report_progress(BYTES, done, self.n_compressed)
        return block

    def skip(self, n_bytes: int) -> None:
        """Pass over bytes: at once in a plain file, by decompressing them in another."""
        if self.is_gzip:
            while n_bytes > 0 and (block := self.read(min(n_bytes, _SKIPPED))):
                n_bytes -= len(block)
            return
        held, self._input = len(self._input), self._input[n_bytes:]
        self._file.seek(max(n_bytes - held, 0), io.SEEK_CUR)
        self.n_read += n_bytes

    def is_damaged_ahead(self) -> bool:
        """Whether the current gzip member turns out to be damaged; false if it is only cut off.

        Only the checksum at its end tells, so this decompresses the member once more.
        """
        from isal.isal_zlib import IsalError  # noqa: PLC0415 - only needed once a file is read

        if self._decoder is None:
            return self._log.count([Defect.GZIP_DAMAGED]) > 0
        at, decoder = self._file.tell(), _gzip_decoder()
        self._file.seek(self._member[0])
        try:
            while not decoder.eof:
                packed = self._block(_READ)
                if not packed:
                    return False
                decoder.decompress(packed)
        except IsalError:  # type: ignore[misc]
            return True
        finally:
            self._file.seek(at)
        return False

    def end_at_damage(self, offset: int) -> None:
        """End the stream: bytes after some decompressed offset are damaged."""
        self._log.once(Defect.GZIP_DAMAGED, offset)
        self._end()

    def _block(self, n_bytes: int) -> bytes:
        """Some bytes of the file as it is, none at the end."""
        try:
            return self._file.read(n_bytes)
        except OSError as exc:
            raise TraceError(
                f"cannot be read at byte {self._file.tell():,}: {exc.strerror or exc}.",
                path=self.path,
                hint="try to copy the file to another disk.",
            ) from exc

    def _plain(self, n_bytes: int) -> bytes:
        if self._input:
            block, self._input = self._input[:n_bytes], self._input[n_bytes:]
            return block
        return self._block(n_bytes)

    def _inflated(self, n_bytes: int) -> bytes:
        """The next decompressed bytes; damage or a cut ends the stream."""
        from isal.isal_zlib import IsalError  # noqa: PLC0415 - only needed once a file is read

        while self._decoder is not None:
            if not self._input:
                self._input = self._block(_READ)
            try:
                block: bytes = self._decoder.decompress(self._input, n_bytes)
            except IsalError:  # type: ignore[misc]
                self._log.add(Defect.GZIP_DAMAGED, self.n_read)
                self._decoder = None
                self._input = self._salvaged()
                return self._plain(n_bytes)
            was_last = not self._input
            self._input = self._decoder.unconsumed_tail
            if self._decoder.eof:
                self._next_member(self._decoder.unused_data, self.n_read + len(block))
            elif was_last and not block:
                self._log.add(Defect.GZIP_TRUNCATED, self.n_read)
                self._decoder = None
            if block:
                return block
        return b""

    def _salvaged(self) -> bytes:
        """The unread bytes before the damage.

        isal discards its output at an error, zlib keeps it: decompress the member again, byte by
        byte near the end.
        """
        start, n_seen = self._member
        decoder, rest = zlib.decompressobj(GZIP_WINDOW), []
        end = self._file.tell()
        self._file.seek(start)
        try:
            while self._file.tell() < end:
                near = self._file.tell() >= end - 2 * _READ
                block = decoder.decompress(self._block(1 if near else _READ))
                rest.append(block[max(self.n_read - n_seen, 0) :])
                n_seen += len(block)
        except zlib.error:
            pass
        self._file.seek(0, io.SEEK_END)
        return b"".join(rest)

    def _next_member(self, rest: bytes, n_read: int) -> None:
        """Continue with the next gzip member; zero bytes between are padding."""
        while len(rest := rest.lstrip(b"\0")) < len(GZIP_MAGIC) and (more := self._block(_READ)):
            rest += more
        if rest.startswith(GZIP_MAGIC):
            self._decoder = _gzip_decoder()
            self._input = rest
            self._member = self._file.tell() - len(rest), n_read
            return
        if rest:
            self._log.add(Defect.GZIP_DAMAGED, n_read)
        self._end()

    def _end(self) -> None:
        self._decoder = None
        self._input = b""
        self._file.seek(0, io.SEEK_END)


def _gzip_decoder() -> Any:  # noqa: ANN401 - a type that isal does not name
    from isal import isal_zlib  # noqa: PLC0415 - only needed once a file is read

    return isal_zlib.decompressobj(GZIP_WINDOW)


def _open(path: Path) -> BinaryIO:
    try:
        return open_file(path)
    except IsADirectoryError:
        raise TraceError(
            "is a folder, not a trace file.", path=path, hint="load_job() reads a folder."
        ) from None
    except FileNotFoundError:
        raise not_found(path) from None
    except OSError as exc:
        raise TraceError(
            f"cannot be read: {exc.strerror}.", path=path, hint="check the path and its rights."
        ) from exc


_BLOCK = 1 << 22
"""Bytes read at once (chosen)."""


def first_bytes(source: str | Path | bytes, n_bytes: int) -> bytes:
    """The first bytes of a file or of content; none if it cannot be read, or only once (a pipe)."""
    head = source[:n_bytes] if isinstance(source, bytes) else _head_of(Path(source), n_bytes)
    if not head.startswith(GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(GZIP_WINDOW).decompress(head, n_bytes)
    except zlib.error:
        return b""


def _head_of(path: Path, n_bytes: int) -> bytes:
    try:
        if not is_file(path):
            return b""
        with open_file(path) as file:
            return file.read(n_bytes)
    except (OSError, TraceError):
        return b""


def content_of(source: str | Path | bytes) -> bytes:
    """All bytes of a file, or of its content."""
    if isinstance(source, bytes) and not source.startswith(GZIP_MAGIC):
        return source
    log = RepairLog(Defect)
    with closing(ByteStream(source, log)) as stream:
        content = b"".join(iter(lambda: stream.read(_BLOCK), b""))
        path = stream.path
    if log.count([Defect.GZIP_TRUNCATED, Defect.GZIP_DAMAGED]):
        raise TraceFormatError("the gzip data is damaged.", path=path, hint="copy the file again.")
    return content


def text_lines(path: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 are replaced."""
    return content_of(path).decode("utf-8", "replace").splitlines()
