"""Names of what the autograd engine runs."""

from __future__ import annotations

import re

AUTOGRAD_FUNCTION = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad$")
"""Functions of the backward pass: ``AddmmBackward0``, and what evaluates them."""
