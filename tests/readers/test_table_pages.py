"""Tables read from the pages of a database hold what SQLite says they hold."""

from __future__ import annotations

import random
import sqlite3

import numpy as np
import pytest

from htagraph.readers.nsys.table_pages import Wanted, read_table

ABSENT = np.iinfo(np.int64).min
ALL = Wanted(0, np.array([0, 1, 2]), text=1, owner=-1, low=0, high=0, absent=ABSENT)


def database(*rows: tuple[object, object, object]) -> tuple[bytearray, int]:
    """A database in pages of 512 bytes, and the root page of its table."""
    made = sqlite3.connect(":memory:")
    made.execute("PRAGMA page_size = 512")
    made.execute("CREATE TABLE calls (start, text, thread)")
    made.executemany("INSERT INTO calls VALUES (?, ?, ?)", rows)
    made.commit()
    root = made.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    return bytearray(made.serialize()), root


def read(content: bytearray, root: int, wanted: Wanted = ALL) -> list[tuple[object, ...]] | None:
    """The rows of a table, as SQLite would return them."""
    found = read_table(np.frombuffer(content, dtype=np.uint8), wanted._replace(root=root))
    if found is None:
        return None
    (start, n_bytes, thread), texts = found
    ends = np.cumsum(np.maximum(n_bytes, 0)).tolist()
    text = [
        None if n == ABSENT else texts[end - n : end].tobytes().decode()
        for n, end in zip(n_bytes.tolist(), ends, strict=True)
    ]
    numbers = ([None if n == ABSENT else n for n in of.tolist()] for of in (start, thread))
    return list(zip(*[next(numbers), text, next(numbers)], strict=True))


def drawn_rows(n: int) -> list[tuple[int | None, str | None, int]]:
    """Integers of each width, NULL, texts of up to three pages; of threads 0 to 9."""
    draw = random.Random(1)  # noqa: S311 - no secret
    edges = [None, 0, 1, -1, *(sign << bits for bits in range(1, 63) for sign in (1, -1))]
    texts = [None, "", *("µs" * length for length in (1, 50, 120, 160, 400))]
    return [(draw.choice(edges), draw.choice(texts), draw.randrange(10)) for _ in range(n)]


def test_a_table_of_many_pages_has_its_rows_in_order():
    rows = drawn_rows(3000)

    assert read(*database(*rows)) == rows


def test_rows_of_other_threads_are_left_out():
    rows = drawn_rows(300)

    found = read(*database(*rows), ALL._replace(owner=2, low=3, high=5))

    assert found == [row for row in rows if 3 <= row[2] <= 5]


def test_an_empty_table_has_no_rows():
    assert read(*database()) == []


@pytest.mark.parametrize("row", [(1.5, "a", 1), ("1", "a", 1), (1, b"a", 1), (1, 2, 1)])
def test_cells_of_another_type_are_left_to_sqlite(row):
    assert read(*database((1, "a", 1), row)) is None


def test_pages_in_a_circle_are_left_to_sqlite():
    """The first child of the root is the root."""
    content, root = database(*drawn_rows(300))
    page = (root - 1) * 512
    first = page + int.from_bytes(content[page + 12 : page + 14], "big")

    content[first : first + 4] = root.to_bytes(4, "big")

    assert read(content, root) is None


def test_a_text_whose_pages_are_missing_is_left_to_sqlite():
    content, root = database((1, "a" * 5000, 1))

    assert read(content[: -4 * 512], root) is None
