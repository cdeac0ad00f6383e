"""Patterns as texts: what they mean, and where an error points."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.errors import QueryError
from htagraph.lookup.patterns import (
    HOP_KINDS,
    NUMBERS,
    PATTERN_KINDS,
    SIGNS,
    TEXTS,
    Condition,
    Hop,
    Pattern,
    parse_pattern,
)


def test_a_chain_of_events_and_arrows():
    """Kinds and names; arrows forward, backward, of any kind, of several, repeated."""
    assert parse_pattern(
        "op aten::linear -LAUNCH> kernel <STREAM- nccl* -> memcpy|memset <- any "
        "-sync|STREAM{2}> kernel -STREAM{1,3}> *"
    ) == (
        Pattern("op", "aten::linear"),
        Hop("LAUNCH"),
        Pattern("kernel"),
        Hop("STREAM", backward=True),
        Pattern("any", "nccl*"),
        Hop(),
        Pattern("memcpy|memset"),
        Hop(backward=True),
        Pattern("any"),
        Hop("SYNC|STREAM", 2, 2),
        Pattern("kernel"),
        Hop("STREAM", 1, 3),
        Pattern("any", "*"),
    )


def test_names_are_bare_quoted_or_regular_expressions():
    """Alternatives between bars; in quotes, spaces, brackets and kinds are part of a name."""
    assert parse_pattern('op aten::mm|"a b [c] \\"d\\""|/^nccl\\/x/') == (
        Pattern("op", ("aten::mm", 'a b [c] "d"', re.compile("^nccl/x"))),
    )
    assert parse_pattern('"kernel"') == (Pattern("any", "kernel"),)


def test_conditions_hold_together():
    """Times have units; `under` and `on_path` are those of `select`."""
    text = "kernel [dur > 1.5ms, dur_ns<=2s, stream=7|20, category!=gpu*, under=Opt*, !on_path]"

    assert parse_pattern(text) == (
        Pattern(
            "kernel",
            under="Opt*",
            on_path=False,
            conditions=(
                Condition("dur_ns", ">", (1_500_000,)),
                Condition("dur_ns", "<=", (2_000_000_000,)),
                Condition("stream", "=", (7, 20)),
                Condition("category", "!=", ("gpu*",)),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("text", "mark", "said"),
    [
        ("", "^", "expected an event: its kind (op, kernel, any …), its name, or both, but it"),
        ("-> op", "^", "expected an event"),
        ("op ->", "     ^", "expected an event"),
        ("op -LANCH> kernel", "    ^", "a kind of edge, not 'LANCH'"),
        ("op -LAUNCH|> kernel", "           ^", "a kind of edge"),
        ("op -LAUNCH kernel", "          ^", "'>', which ends the arrow"),
        ("op <LAUNCH> kernel", "          ^", "'-', which ends the arrow"),
        ("op -STREAM{x}> op", "           ^", "how often"),
        ("op -STREAM{1> op", "            ^", "'}'"),
        ("op -STREAM{3,1}> op", "           ^", "0 to 64 edges"),
        ("op -STREAM{1,65}> op", "           ^", "0 to 64 edges"),
        ("kernle nccl* -> op", "^", "a kind of event, not 'kernle'"),
        ("op a b", "     ^", "an arrow, '[' or the end"),
        ("op a]", "op a]", None),
        ("kernel->kernel", "      ^", "a space, not '->'"),
        ("op a|", "     ^", "a name, but it ends"),
        ('op "a b', "   ^", "a closing quote"),
        ("op ((", "   ^", "a name, not '(('"),
        ("op /(a+)+b/", "   ^", "a name"),
        ("op [dur>1mx]", "         ^", "a unit (ns, us, ms, s)"),
        ("op [dur>fast]", "        ^", "a time"),
        ("op [dur>0.5ns]", "        ^", "whole nanoseconds"),
        ("op [dur~1ms]", "       ^", "one of = != <= >= < >"),
        ("op [stream=7ms]", "            ^", "no unit"),
        ("op [stream=9999999999999999999]", "           ^", "whole"),
        ("op [category>3]", "            ^", "one of = !="),
        ("op [durr>1ms]", "    ^", "a condition, not 'durr'"),
        ("op [on_path, on_path]", "             ^", "a condition"),
        ("op [!dur>1ms]", "    ^", "a condition"),
        ("op [under>x]", "         ^", "'='"),
        ("op [dur>1ms", "           ^", "',' or ']'"),
        ("op [dur>1ms] x", "             ^", "an arrow"),
        ("op []", "    ^", "a condition"),
    ],
)
def test_errors_point_at_the_character(text, mark, said):
    """The text, a mark below the wrong character, and what was expected there."""
    if said is None:
        assert parse_pattern(text)
        return
    with pytest.raises(QueryError) as caught:
        parse_pattern(text)

    assert caught.value.excerpt == f"{text}\n{mark}"
    assert said in caught.value.message
    assert f"character {len(mark)} of" in caught.value.message


def test_a_mistyped_kind_is_named():
    """Of events and of edges."""
    with pytest.raises(QueryError, match="did you mean 'kernel'"):
        parse_pattern("kernle x -> op")
    with pytest.raises(QueryError, match="did you mean 'LAUNCH'"):
        parse_pattern("op -LANCH> kernel")


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "op" + " -> op" * 600,
        "op" + " -> op" * 33,
        "op -STREAM{1,99999999999999999999}> op",
        "[" * 3_999,
        "op /" + "(" * 3_000 + ")" * 3_000 + "/",
        "op /" + "(a|a)*" * 500 + "b/",
        "op /(.*)*" + "x" * 100 + "/",
        'op "' + "\\" * 3_990,
        "op -" + "STREAM|" * 560 + "> op",
        "op [dur>" + "9" * 3_000 + "]",
        "op " + "a|" * 1_990,
        "\0\x1b[2J",
        "op \ud800 ->",
    ],
)
def test_hostile_texts_are_refused_at_once(text):
    """Too long, too deep, too often, and regular expressions that take for ever."""
    start = time.perf_counter()
    with pytest.raises(QueryError) as caught:
        parse_pattern(text)

    assert time.perf_counter() - start < 1
    assert len(str(caught.value)) < 1_500
    assert "\x1b" not in caught.value.excerpt


def names() -> st.SearchStrategy:
    """Any text, any of a few regular expressions, or several."""
    texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
    one = texts.filter(_is_name) | st.sampled_from(["^nccl", "a/b", r"\d+ [a-z]", '"']).map(
        re.compile
    )
    return one | st.lists(one, min_size=2, max_size=3).map(tuple)


def _is_name(text: str) -> bool:
    """Whether it is no broken regular expression."""
    with suppress(QueryError):
        return bool(parse_pattern(str(Pattern("op", text))))
    return False


numbers = st.integers(-(2**40), 2**40)
conditions = st.one_of(
    st.builds(
        Condition,
        st.sampled_from([*NUMBERS]),
        st.sampled_from([*SIGNS]),
        st.tuples(numbers),
    ),
    st.builds(
        Condition,
        st.sampled_from([*NUMBERS]),
        st.sampled_from(["=", "!="]),
        st.lists(numbers, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        lambda column, sign, name: Condition(
            column, sign, name if isinstance(name, tuple) else (name,)
        ),
        st.sampled_from([*TEXTS]),
        st.sampled_from(["=", "!="]),
        names(),
    ),
)
patterns = st.builds(
    Pattern,
    st.lists(st.sampled_from(PATTERN_KINDS), min_size=1, max_size=2).map("|".join),
    st.none() | names(),
    under=st.none() | names(),
    on_path=st.none() | st.booleans(),
    conditions=st.lists(conditions, max_size=3).map(tuple),
)
hops = st.builds(
    lambda kinds, times, backward: Hop("|".join(kinds), *sorted(times), backward),
    st.lists(st.sampled_from(HOP_KINDS), max_size=3),
    st.tuples(st.integers(0, 64), st.integers(0, 64)) | st.just((1, 1)),
    st.booleans(),
)


@given(patterns, st.lists(st.tuples(hops, patterns), max_size=3))
def test_a_pattern_is_read_as_it_was_written(first, more):
    """Writing, then reading, gives the same chain."""
    chain = (first, *(item for pair in more for item in pair))

    assert parse_pattern(" ".join(map(str, chain))) == chain


@given(st.text(alphabet='opkernel ->{}[]|"/<*=,1ms!', max_size=30))
def test_any_text_is_a_pattern_or_an_error_that_points_into_it(text):
    """Never another exception."""
    caught = None
    try:
        parse_pattern(text)
    except QueryError as error:
        caught = error

    assert caught is None or len(caught.excerpt.split("\n")[-1]) - 1 <= len(text)
