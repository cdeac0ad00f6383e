"""A file as a stream of decompressed bytes: plain or gzip by content, in bounded memory."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from htagraph.errors import TraceError, TraceLimitError
from htagraph.readers.kineto.repairs import Defect, RepairLog
from htagraph.readers.not_found import not_found
from htagraph.readers.storage import open_file, size_of

__all__ = ["MAX_RATIO", "RATIO_FROM", "ByteStream"]

RATIO_FROM = 1 << 28
"""Decompressed bytes from which on the compression ratio is watched."""

MAX_RATIO = 200
"""Largest ratio of decompressed to compressed bytes; real traces have 8 to 30, bombs more."""

_GZIP_MAGIC = b"\x1f\x8b"
_READ = 1 << 15
_GZIP_WINDOW = 31  # zlib's code for "gzip, 32 KiB window"


class ByteStream:
    """The decompressed bytes of a file, from the first to the last.

    Parameters
    ----------
    source : str, Path or bytes
        The file, or its content.
    log : RepairLog
        Counts the defects of the container.
    progress : callable, optional
        Called with the bytes of the file read so far and their total.
    """

    def __init__(
        self,
        source: str | Path | bytes,
        log: RepairLog,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.path = None if isinstance(source, bytes) else Path(source)
        self._log = log
        self._progress = progress
        self._file: BinaryIO = (
            io.BytesIO(source) if isinstance(source, bytes) else _open(Path(source))
        )
        self.n_compressed = size_of(self._file)
        self.n_read = 0
        self._input = self._file.read(_READ)
        self._decoder = _gzip_decoder() if self._input.startswith(_GZIP_MAGIC) else None
        self.is_gzip = self._decoder is not None
        self._note_name()

    def _note_name(self) -> None:
        """Count a file name that contradicts the content."""
        if self.path is None or not self.n_compressed:
            return
        named_gzip = self.path.suffix.lower() in {".gz", ".gzip"}
        if self.is_gzip and not named_gzip:
            self._log.add(Defect.GZIP_NAME, 0)
        if named_gzip and not self.is_gzip:
            self._log.add(Defect.NOT_GZIP, 0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, n_bytes: int) -> bytes:
        """Some bytes, none at the end."""
        block = self._inflated(n_bytes) if self._decoder is not None else self._plain(n_bytes)
        self.n_read += len(block)
        if (
            self.is_gzip
            and self.n_read > RATIO_FROM
            and self.n_read > MAX_RATIO * max(self._file.tell(), 1)
        ):
            raise TraceLimitError(
                f"the file unpacks to more than {MAX_RATIO} times its size; "
                "this looks like a decompression bomb",
                path=self.path,
                offset=self.n_read,
                hint="decompress it yourself if you trust it; "
                "a plain .json file has no such limit.",
            )
        if self._progress is not None:
            self._progress(min(self._file.tell(), self.n_compressed), self.n_compressed)
        return block

    def _plain(self, n_bytes: int) -> bytes:
        if self._input:
            block, self._input = self._input[:n_bytes], self._input[n_bytes:]
            return block
        return self._file.read(n_bytes)

    def _inflated(self, n_bytes: int) -> bytes:
        """The next decompressed bytes; damage or a cut ends the stream."""
        from isal.isal_zlib import IsalError  # noqa: PLC0415 - only needed once a file is read

        while self._decoder is not None:
            if not self._input:
                self._input = self._file.read(_READ)
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
                self._next_member()
            elif was_last and not block:
                self._log.add(Defect.GZIP_TRUNCATED, self.n_read)
                self._decoder = None
            if block:
                return block
        return b""

    def _salvaged(self) -> bytes:
        """The bytes before the damage that were not read yet.

        Decompresses from the start again, and near the damage byte by byte.
        """
        decoder, n_seen, rest = zlib.decompressobj(_GZIP_WINDOW), 0, []
        end = self._file.tell()
        self._file.seek(0)
        try:
            while self._file.tell() < end:
                near = self._file.tell() >= end - 2 * _READ
                block = decoder.decompress(self._file.read(1 if near else _READ))
                rest.append(block[max(self.n_read - n_seen, 0) :])
                n_seen += len(block)
        except zlib.error:
            pass
        self._file.seek(0, io.SEEK_END)
        return b"".join(rest)

    def _next_member(self) -> None:
        """Go on with the gzip member that follows, if one does; zero bytes are padding."""
        assert self._decoder is not None
        rest = self._decoder.unused_data
        rest = (rest + self._file.read(_READ)).lstrip(b"\0")
        if rest.startswith(_GZIP_MAGIC):
            self._decoder = _gzip_decoder()
            self._input = rest
            return
        if rest:
            self._log.add(Defect.GZIP_DAMAGED, self.n_read)
        self._decoder = None
        self._input = b""
        self._file.seek(0, io.SEEK_END)


def _gzip_decoder() -> Any:  # noqa: ANN401 - a type that isal does not name
    """A decoder of one gzip member."""
    from isal import isal_zlib  # noqa: PLC0415 - only needed once a file is read

    return isal_zlib.decompressobj(_GZIP_WINDOW)


def _open(path: Path) -> BinaryIO:
    """Open a file, or say in one line why not."""
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
