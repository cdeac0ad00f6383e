"""The words of a report: titles of findings, what a run without them is, why nothing is said."""

from __future__ import annotations

from htagraph.model.kinds import Cause

TITLES = {cause: cause.value[0].upper() + cause.value[1:] for cause in Cause} | {
    Cause.LATE_RANK: "Rank {rank} is late",
    Cause.PIPELINE: "A part of the pipeline is slower than its peers",
    Cause.EXPERT_IMBALANCE: "Ranks work on more tokens than the mean",
}
"""The cause of each finding, for people: its label, if the run does not say more."""
TITLE_PLAIN = "Program functions"
IF_GONE = {
    Cause.LATE_RANK: "if it kept up",
    Cause.PIPELINE: "if it were as fast as its peers",
    Cause.EXPERT_IMBALANCE: "if tokens were balanced",
}
"""The condition of the run without a cause, if that is neither "without it" nor "without them"."""
UNTRACED = "untraced code"
CODE_OR_WAIT = "code or a wait"
UNREAD_CODE = "Python not read (--stacks)"
NOTHING_MATCHED = (
    "no collectives could be matched between ranks with aligned clocks, so it is unknown how long "
    "they waited for each other; report on each rank separately, or capture the same steps of one "
    "run on all ranks, with NCCL metadata."
)
