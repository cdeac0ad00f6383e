"""No pattern takes long for a long name: what it looks for, begun again and again."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from re import _constants as of  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

import htagraph
from htagraph.errors import QueryError
from htagraph.job.groups import stated_ranks
from htagraph.model.collective_names import ranks_in_name
from htagraph.model.symbols import compile_pattern
from htagraph.queries.communication import short_group

_LENGTH = 6_000
_MOST_S = 0.05
"""Looking once takes 0.1 ms, looking once from each character 0.1 s."""

_CHARACTERS = {
    of.CATEGORY_DIGIT: "0", of.CATEGORY_SPACE: " ", of.CATEGORY_WORD: "a",
    of.CATEGORY_NOT_DIGIT: "a", of.CATEGORY_NOT_SPACE: "a", of.CATEGORY_NOT_WORD: " ",
}  # fmt: skip


def patterns() -> Iterator[tuple[str, ModuleType, re.Pattern[Any]]]:
    """Yield all patterns of modules: their names, where they are, and what they are."""
    for about in pkgutil.walk_packages(htagraph.__path__, "htagraph."):
        if about.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(about.name)
        except ImportError:  # an extra
            continue
        for name, value in vars(module).items():
            if not name.startswith("__"):
                yield from ((name, module, found) for found in within(value))


def within(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        yield from within([*value, *value.values()], depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from within(one, depth - 1)


def fitting(tree: Iterable[Any], least: int) -> str:
    """A text that a pattern fits, with at least so many of what may be absent."""
    text = ""
    for kind, value in tree:
        if kind is of.LITERAL:
            text += chr(value)
        elif kind in (of.ANY, of.NOT_LITERAL):
            text += "a" if value != ord("a") else "b"
        elif kind is of.IN:
            text += one_of(value)
        elif kind is of.BRANCH:
            text += fitting(value[1][0], least)
        elif kind is of.SUBPATTERN:
            text += fitting(value[3], least)
        elif kind in (of.MAX_REPEAT, of.MIN_REPEAT):
            text += fitting(value[2], least) * max(value[0], least)
    return text


def one_of(choices: list[tuple[Any, Any]]) -> str:
    """A character of a set."""
    kind, value = choices[0]
    if kind is of.NEGATE:
        left_out = {chr(value) for kind, value in choices if kind is of.LITERAL}
        return next(one for one in "a (0" if one not in left_out)
    if kind is of.CATEGORY:
        return _CHARACTERS[value]
    return chr(value[0] if kind is of.RANGE else value)


def slowest_s(pattern: re.Pattern[Any], ways: Iterable[str]) -> float:
    """How long a pattern takes at most for the begins of what fits it, one after the other."""
    is_bytes = isinstance(pattern.pattern, bytes)
    source = pattern.pattern.decode("latin-1") if is_bytes else pattern.pattern
    tree = parser.parse(source, pattern.flags & ~re.UNICODE if is_bytes else pattern.flags)
    whole = {fitting(tree, 0)[:60], fitting(tree, 1)[:60]}
    begins = {text[:end] for text in whole for end in range(1, len(text) + 1)} | {*"".join(whole)}
    longest_s = 0.0
    for begin in begins:
        text = begin * (_LENGTH // len(begin)) + "\0"
        for way in ways:
            start = time.process_time()
            getattr(pattern, way)(text.encode("latin-1", "replace") if is_bytes else text)
            longest_s = max(longest_s, time.process_time() - start)
    return longest_s


def test_no_pattern_takes_long_for_a_long_name() -> None:
    """Looked at in the way in which its module does: `match` begins once, `search` everywhere."""
    slow = {}
    for name, module, pattern in patterns():
        source = inspect.getsource(module)
        ways = set(re.findall(rf"\b{name}\.(match|fullmatch|search)\(", source)) or {"search"}
        taken_s = slowest_s(pattern, ways)
        if taken_s > _MOST_S:  # a collection of garbage takes as long once, a slow pattern always
            taken_s = min(taken_s, slowest_s(pattern, ways))
        if taken_s > _MOST_S:
            slow[f"{module.__name__}.{name}"] = round(taken_s, 2)

    assert slow == {}


@pytest.mark.parametrize(
    "read",
    [
        lambda digits: ranks_in_name(f"cross_device_reduce_1stage<{digits}>"),
        lambda digits: stated_ranks(f"kernels of {digits} ranks on a device"),
        short_group,
        lambda digits: compile_pattern(f"({digits}")("name"),
        lambda digits: compile_pattern("(" * len(digits))("name"),
    ],
    ids=["kernel", "group", "ranks", "regex", "brackets"],
)
def test_numbers_of_thousands_of_digits_in_names_are_no_defect(
    read: Callable[[str], object],
) -> None:
    """Python refuses to read them, and patterns of as many brackets."""
    with suppress(QueryError):
        read("9" * 5_000)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*$", "(a*)*b", "(.*a){12}$", ".*.*.*.*.*x", "((a{9})+b?)+c"]
)
def test_a_regex_that_may_never_end_is_refused(pattern: str) -> None:
    """An agent may send one as a window; nothing could stop the search."""
    with pytest.raises(QueryError, match="may take for ever"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["ProfilerStep#(3|4)", "^aten::(mm|addmm)$", "nccl.*(Reduce|Gather)", r"\d+ -> \d+", "(ab){2}"],
)
def test_a_usual_regex_is_none_of_these(pattern: str) -> None:
    assert not compile_pattern(pattern)("another name")
