"""Names of sampled series that are clocks of a device."""

from __future__ import annotations

import re

SM_CLOCK = re.compile(
    r"^clocks(\.current)?\.sm$|^pclk$|^SMCLK$|^DCGM_FI_DEV_SM_CLOCK$|^gfx_0_clk$", re.IGNORECASE
)
"""Series with the clock of multiprocessors in MHz: of ``nvidia-smi --query-gpu``, its ``dmon``,
``dcgmi dmon -e 100``, the DCGM exporter, and ``amd-smi metric -c``."""
MEMORY_CLOCK = re.compile(
    r"^clocks(\.current)?\.mem(ory)?$|^mclk$|^MMCLK$|^DCGM_FI_DEV_MEM_CLOCK$|^mem_0_clk$",
    re.IGNORECASE,
)
"""The same of memory: ``dcgmi dmon -e 101``."""
