"""Several mechanisms in one subnet: its emission split among them, and what their epochs come to together.

Each mechanism's epoch is Yuma's (yuma.py) over its own weights and bonds. Rules, and where they round, follow
`split_emissions` and `epoch_with_mechanisms` of Subtensor's pallet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subnet.localnet.consensus.yuma import U16_MAX, EpochResult

FRACTION_BITS = 64
"""Of a mechanism's weight in the sums."""


@dataclass(frozen=True)
class Combined:
    """A subnet's columns by uid over all its mechanisms; u16 are proportions of 65535, emissions are rao."""

    active: list[bool]
    validator_permit: list[bool]
    consensus: list[int]
    validator_trust: list[int]
    dividends: list[int]
    emission: list[int]
    """Weighted like the others, so with several mechanisms less than was earned: the runtime has it so."""
    server_emission: list[int]
    validator_emission: list[int]


def split(amount: int, shares: Sequence[int] | None, count: int) -> list[int]:
    """`amount` over `count` mechanisms by u16 shares that sum to 65535, or evenly; what rounding leaves is the first's.

    Shares for another number of mechanisms than there are count as none.
    """
    if shares is not None and len(shares) == count:
        parts = [amount * share // U16_MAX for share in shares]
    else:
        parts = [amount // count] * count
    parts[0] += amount - sum(parts)
    return parts


def combine(results: Sequence[EpochResult], amounts: Sequence[int]) -> Combined:
    """The mechanisms' results, by the emission each had."""
    total = sum(amounts)
    # Without emission nothing is divided: the first mechanism's columns stand.
    weights = [(amount << FRACTION_BITS) // total for amount in amounts] if total else [1 << FRACTION_BITS]
    weights += [0] * (len(results) - len(weights))
    uids = range(len(results[0].active))

    def either(column: str) -> list[bool]:
        return [any(bool(getattr(result, column)[uid]) for result in results) for uid in uids]

    def added(column: str) -> list[int]:
        return [sum(int(getattr(result, column)[uid]) for result in results) for uid in uids]

    def weighted(column: str) -> list[int]:
        pairs = list(zip(results, weights, strict=True))
        return [sum(int(getattr(r, column)[uid]) * weight >> FRACTION_BITS for r, weight in pairs) for uid in uids]

    return Combined(
        active=either("active"),
        validator_permit=either("validator_permit"),
        consensus=weighted("consensus"),
        validator_trust=weighted("validator_trust"),
        dividends=weighted("dividends"),
        emission=weighted("emission"),
        server_emission=added("server_emission"),
        validator_emission=added("validator_emission"),
    )
