"""How many blocks fit on a multiprocessor, of numbers that no kernel has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.lookup.launch_geometry import Limit, residency
from htagraph.model.devices import DeviceProperties
from tests.queries.gridded import FOUR_SMS

AMPERE = replace(FOUR_SMS, compute_major=8)
"""Its system takes some of the shared memory."""


def test_registers_whose_product_is_beyond_64_bits_fit_once() -> None:
    """The kernel has run: one block fits."""
    fit = residency(AMPERE, np.array([128]), np.array([1 << 60]), np.array([0]))

    assert (fit.blocks.tolist(), fit.limit.tolist()) == ([1], [Limit.REGISTERS])


def test_shared_memory_whose_sum_is_beyond_64_bits_fits_once() -> None:
    fit = residency(AMPERE, np.array([128]), np.array([16]), np.array([(1 << 63) - 1]))

    assert (fit.blocks.tolist(), fit.limit.tolist()) == ([1], [Limit.SHARED_MEMORY])


def test_a_p100_allocates_registers_from_two_parts_and_others_from_four() -> None:
    """A warp takes 2,816: 11 fit into each half of 65,536 registers, 5 into each quarter."""
    device = DeviceProperties(
        0, warp_size=32, threads_per_sm=2_048, registers_per_sm=65_536, compute_major=6
    )
    kernel = np.array([32]), np.array([88]), np.array([0])

    for minor, n_blocks in ((0, 22), (1, 20)):
        fit = residency(replace(device, compute_minor=minor), *kernel)
        assert (fit.blocks.tolist(), fit.limit.tolist()) == ([n_blocks], [Limit.REGISTERS])
