"""Why a step is an outlier: what it did more or less of, and what took it longer or shorter."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.lookup.steady_steps import steady_steps
from htagraph.synth import timeline


def reasons(drawing: str) -> list[str]:
    """The reason of each step of a drawing."""
    dag = compile_events(timeline(drawing))
    return odd_step_reasons(dag, steady_steps(dag))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("[a][b][c]      ", "3 events more than usual (+1 a, +1 b, +1 c)"),
        ("[d][c][b][a]   ", "4 events more than usual (+1 a, +1 b, +1 c, …)"),
        ("[b][a][b]      ", "3 events more than usual (+2 b, +1 a)"),
    ],
)
def test_up_to_three_names_say_what_a_step_did_more_of(more: str, reason: str) -> None:
    """The most frequent first, then by name; no step is longer than another."""
    step, usual = "{execute_a " + more + "}", "{execute_a " + " " * 15 + "}"

    assert reasons(f"cpu 1 |{usual}{step}{usual}{usual}") == ["", reason, "", ""]


def test_a_step_may_do_other_things_instead() -> None:
    """It runs `b` where the others run `a`."""
    usual = "{execute_a  [a   ] }"

    assert reasons(f"cpu 1 |{usual}{usual}{usual.replace('a   ', 'b   ')}{usual}") == [
        *("", ""),
        "1 event more and 1 event fewer than usual (-1 a, +1 b)",
        "",
    ]


def test_a_name_that_accounts_for_half_of_the_difference_is_the_reason_alone() -> None:
    """Of 20 us, `load` took 10 more, `a` 6 and `b` 4."""
    assert reasons("""
        cpu 1 |[load          ][a       ][b     ] [load][a ][b ] [load][a ][b ] [load][a ][b ]
        cpu 1 |{execute_a                       } {execute_a   } {execute_a   } {execute_a   }
    """) == ["2.33x as long (+10.0 us load)", "", "", ""]


def test_two_names_are_the_reason_if_none_accounts_for_half() -> None:
    """Of 12 us, `a` took 5 more, `b` 4 and `c` 3."""
    usual, step = "{execute_a [a][b][c]}", "{execute_a [a     ][b    ][c   ]}"

    assert reasons(f"cpu 1 |{usual}{step}{usual}{usual}") == [
        *("", "57% longer (+5.00 us a, +4.00 us b)"),
        *("", ""),
    ]


def test_a_shorter_step_says_what_took_it_less() -> None:
    """`a` takes 9 us instead of 15, and code that no event covers 2 instead of 3."""
    assert reasons("""
        cpu 1 |[a            ]   [a      ]  [a            ]   [a            ]
        cpu 1 |{execute_a       }{execute_a}{execute_a       }{execute_a       }
    """) == ["", "39% shorter (-6.00 us a)", "", ""]


def test_if_the_last_step_is_the_usual_one_the_nearest_to_it_is_compared() -> None:
    """No step follows the last one, of 14 us; the fourth takes 15 us, and the first 30."""
    steps = "".join("{execute_a".ljust(length - 1) + "}" for length in (30, 12, 16, 15, 14))

    assert reasons(f"cpu 1 |{steps}") == [
        "2x as long (+15.0 us untraced code)",
        *("", "", "", ""),
    ]
