"""Common parts of shared- and global-memory accesses: checks of lanes, and counts of units by bank.

In: addresses int[..., 32], masks bool[..., 32]. Out: the checked arrays; counts of each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import LayoutError
from gpusim.units import WARP_SIZE

CHUNK_WARPS = 1 << 14
"""Warps that are counted at once. The temporaries of one step then take a few MB, which fit in cache."""

_MANY_UNITS = 1 << 28  # below this value, a unit's bank and row fit in 31 bits


def checked_lanes(
    where: str, addresses: NDArray[np.integer[Any]], active: NDArray[np.bool_] | None, access_bytes: int, num_lanes: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.bool_] | None]:
    """Addresses, and the mask of active lanes in the same shape (None: all lanes).

    Addresses are returned unchanged: ignored lanes may hold any value.

    Raises:
        LayoutError: wrong shapes, addresses that are no integers, or an active lane with a negative or misaligned address.
    """
    addresses = np.asarray(addresses)
    if addresses.ndim == 0 or addresses.shape[-1] != WARP_SIZE:
        raise LayoutError(f"{where}: addresses have shape {addresses.shape}: give {WARP_SIZE} lanes along the last axis")
    if not np.issubdtype(addresses.dtype, np.integer):
        raise LayoutError(f"{where}: addresses are {addresses.dtype}: use integers, in bytes")
    if addresses.dtype not in (np.int32, np.int64):
        if addresses.dtype == np.uint64 and addresses.size and addresses.max() > np.iinfo(np.int64).max:
            raise LayoutError(f"{where}: an address is {addresses.max()}: use addresses below 2^63")
        addresses = addresses.astype(np.int64)
    bad = (addresses[..., :num_lanes] & (access_bytes - 1)) != 0
    bad |= addresses[..., :num_lanes] < 0
    mask = None
    if active is not None:
        if np.shape(active) not in (addresses.shape, (WARP_SIZE,)):
            raise LayoutError(f"{where}: active has shape {np.shape(active)}: use {addresses.shape}, as the addresses have")
        mask = np.broadcast_to(np.asarray(active, dtype=np.bool_), addresses.shape)
        bad &= mask[..., :num_lanes]
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        raise LayoutError(
            f"{where}: lane {first[-1]} has byte address {addresses[first]}: "
            + (f"use a multiple of {access_bytes}, 0 or more" if access_bytes > 1 else "use 0 or more")
        )
    return addresses, mask


def narrowed(units: NDArray[np.integer[Any]], factor: int = 1) -> NDArray[np.integer[Any]]:
    """``units`` as int32 if ``factor`` times their values still fit in 31 bits with their bank; otherwise as int64."""
    fits = not units.size or units.max() < _MANY_UNITS // factor
    return units.astype(np.int32 if fits else np.int64, copy=False)


def num_distinct(addresses: NDArray[np.integer[Any]], mask: NDArray[np.bool_], unit_bytes: int) -> int:
    """Number of distinct units of ``unit_bytes`` along the last axis, summed over the other axes."""
    ordered = np.sort(np.where(mask, addresses // unit_bytes, -1), axis=-1)
    is_first = ordered >= 0
    is_first[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return int(is_first.sum())


def busiest(units: NDArray[np.integer[Any]], num_banks: int, *, is_broadcasting: bool) -> NDArray[np.integer[Any]]:
    """Maximum number of units in one of ``num_banks`` banks, in each row of the last axis.

    ``is_broadcasting``: count distinct units.
    """
    keyed = _by_bank(units, num_banks)
    if is_broadcasting:
        keyed = np.sort(keyed, axis=-1)
        again = keyed[..., 1:] == keyed[..., :-1]
        if again.any():
            keyed[..., 1:][again] = -1
    banks = (keyed >> _row_bits(keyed)).reshape(-1, units.shape[-1])
    num_rows, columns = len(banks), num_banks + 1  # the first column is for inactive lanes, whose bank is -1
    places = banks + np.arange(1, num_rows * columns, columns).reshape(-1, 1)
    counts = np.bincount(places.reshape(-1), minlength=num_rows * columns).reshape(num_rows, columns)
    most: NDArray[np.integer[Any]] = counts[:, 1:].max(axis=-1, initial=0)
    return most.reshape(units.shape[:-1])


def _row_bits(units: NDArray[np.integer[Any]]) -> int:
    """Bits of a unit's row number, below the bits of its bank (at most 32 banks)."""
    return 8 * units.dtype.itemsize - 6


def _by_bank(units: NDArray[np.integer[Any]], num_banks: int) -> NDArray[np.integer[Any]]:
    """A key for each unit that sorts by bank first. -1 stays -1."""
    shift = num_banks.bit_length() - 1
    keyed = ((units & (num_banks - 1)) << _row_bits(units)) | (units >> shift)
    return np.where(units >= 0, keyed, -1)
