"""Functions as machine code: what they are given, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from htagraph.arrays import code_cache, objects
from htagraph.arrays.inner import called
from htagraph.arrays.passes import compiled


class Pair(NamedTuple):
    """An array and a number."""

    values: np.ndarray
    factor: float


@called
def scaled(value: int, factor: float) -> int:
    return np.int64(value * factor)


@compiled
def scale(pair: Pair, table: np.ndarray, is_negative: bool) -> tuple[int, int]:
    """Add scaled values to the columns of a table; return their number and the table's rows."""
    for k in range(len(pair.values)):
        value = scaled(pair.values[k], pair.factor)
        table[k % table.shape[0], k // table.shape[0]] += -value if is_negative else value
    return len(pair.values), table.shape[0]


@pytest.mark.parametrize("order", ["C", "F"], ids=["rows", "columns"])
def test_machine_code_takes_tuples_numbers_and_arrays_in_any_order(order: str) -> None:
    table = np.ones((2, 3), dtype=np.int64, order=order)

    assert scale(Pair(np.arange(12)[::2], 1.5), table, True) == (6, 2)
    assert table.tolist() == [[1, -5, -11], [-2, -8, -14]]


def test_code_that_allocates_is_refused() -> None:
    @compiled
    def allocates(n: int) -> int:
        return len(np.zeros(n))

    with pytest.raises(Exception, match=r"NRT|alloc|array"):
        allocates(3)


@pytest.mark.slow
def test_a_function_whose_source_changes_is_compiled_anew(tmp_path: Path) -> None:
    """As long as it does not, the code that is kept is the code that runs."""

    def of_source(text: str) -> int:
        source = tmp_path / "source.py"
        source.write_text(f"def f(x) -> 'int':\n    return {text}\n")
        script = (
            "import source; from htagraph.arrays.passes import compiled; "
            "print(compiled(source.f)(7))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return int(done.stdout)

    assert [of_source(text) for text in ("x + 1", "x + 2", "x + 1")] == [8, 9, 8]


def test_a_function_whose_numbers_change_elsewhere_is_compiled_anew(tmp_path: Path) -> None:
    """Lowering freezes them: the code of a rule, of which another file says what it is."""
    (tmp_path / "source.py").write_text(
        "from codes import CODE\nfrom htagraph.arrays.inner import called\n"
        "@called\ndef g(x): return x + CODE\ndef f(x) -> 'int':\n    return g(x)\n"
    )

    def with_code(code: int) -> int:
        (tmp_path / "codes.py").write_text(f"CODE = {code}\n")
        script = (
            "import source; from htagraph.arrays.passes import compiled; "
            "print(compiled(source.f)(7))"
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", script],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        return int(done.stdout)

    assert [with_code(code) for code in (1, 22, 1)] == [8, 29, 8]


def test_what_is_kept_is_found_until_it_is_damaged(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTAGRAPH_CACHE_DIR", str(tmp_path))
    code_cache.keep("some.o", b"code")
    (file,) = tmp_path.iterdir()

    assert code_cache.found("some.o") == b"code"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert code_cache.found("some.o") is None


def test_warm_looks_for_code_only_where_it_keeps_it(monkeypatch, tmp_path: Path) -> None:
    """An image gets all of it, though whoever builds it has some in a cache of his own."""
    monkeypatch.setenv("HTAGRAPH_CACHE_DIR", str(tmp_path / "own" / "htagraph"))
    code_cache.keep("some.o", b"code")
    monkeypatch.setenv("HTAGRAPH_CACHE_DIR", "")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "image"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))

    assert code_cache.found("some.o") == b"code"
    with code_cache.at_home() as place:
        assert (place, code_cache.found("some.o")) == (tmp_path / "image" / "htagraph", None)


@pytest.mark.parametrize(("mode", "seen"), [(0o700, b"code"), (0o777, None)])
def test_what_others_may_have_put_among_temporary_files_is_not_run(
    monkeypatch, tmp_path: Path, mode: int, seen: bytes | None
) -> None:
    monkeypatch.setenv("HTAGRAPH_CACHE_DIR", str(tmp_path / "htagraph"))
    code_cache.keep("some-test.o", b"code")
    monkeypatch.delenv("HTAGRAPH_CACHE_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = code_cache.places()[-1]
    (tmp_path / "htagraph").rename(own)
    own.chmod(mode)

    assert code_cache.found("some-test.o") == seen


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away")
def test_code_of_another_user_is_not_run(monkeypatch, tmp_path: Path) -> None:
    """``NUMBA_CACHE_DIR=/tmp/numba``, ``HOME=/tmp``: whoever was there first could plant code."""
    monkeypatch.delenv("HTAGRAPH_CACHE_DIR", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    file = tmp_path / "htagraph" / "some.o"
    code_cache.keep("some.o", b"code")

    assert code_cache.found("some.o") == b"code"
    file.chmod(0o666)
    assert code_cache.found("some.o") is None
    file.chmod(0o644)
    os.chown(file, 12_345, -1)
    assert code_cache.found("some.o") is None
    monkeypatch.setenv("HTAGRAPH_CACHE_DIR", str(file.parent))
    assert code_cache.found("some.o") == b"code"


def test_a_process_that_keeps_the_lock_is_not_waited_for(monkeypatch, tmp_path: Path) -> None:
    """It was stopped in the middle: others make their own code."""
    monkeypatch.setenv("HTAGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(code_cache, "_PATIENCE_S", 0.1)
    done = []

    def wait() -> None:
        with code_cache.alone():
            done.append(True)

    with code_cache.alone():
        other = threading.Thread(target=wait, daemon=True)
        other.start()
        other.join(timeout=10)
    assert done


def test_bitcode_of_a_later_llvm_is_left_alone() -> None:
    """What this LLVM cannot read is an error that `passes` knows, and lowers the function anew."""
    with pytest.raises(RuntimeError):
        objects.object_code(b"BC\xc0\xde of another time")
