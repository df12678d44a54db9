"""The alpha/TAO pool of a subnet and the price of registering a neuron in it.

A constant-product market in integer rao, rounded in the pool's favour; Subtensor's pool is the same curve as long
as its two reserve weights are equal, as they are in a pool that no emission was injected into.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import isqrt

RAO = 1_000_000_000
U16_MAX = 0xFFFF
FEE_RATE = 33
"""Swap fee, u16 proportion of what is paid in (0.05 %)."""
MAX_INPUT_MULTIPLE = 1_000
"""A swap may not pay in more than this many times the reserve it pays into."""

MIN_BURN = 500_000
"""Lowest registration price, rao (0.0005 TAO)."""
MAX_BURN = 100 * RAO
BURN_HALF_LIFE = 360
"""Blocks in which the registration price halves while nobody registers."""
BURN_INCREASE = 1.26
"""Factor on the registration price after each registration."""


class PoolError(ValueError):
    """A swap that the pool refuses; `name` is the runtime's error name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Pool:
    """Reserves of one subnet, rao."""

    tao: int
    alpha: int

    @property
    def price(self) -> Fraction:
        """Spot price, TAO per alpha; 0 for an empty pool."""
        return Fraction(self.tao, self.alpha) if self.alpha else Fraction(0)

    @property
    def price_rao(self) -> int:
        """Spot price in rao of TAO per alpha, rounded down: the unit of limit prices."""
        return self.tao * RAO // self.alpha if self.alpha else 0


@dataclass(frozen=True)
class Swap:
    """A swap that was worked out. `pool` is the pool after it; `paid + fee + refund` is what was offered."""

    pool: Pool
    paid: int
    """rao that entered the pool."""
    fee: int
    """rao charged on top, in the currency paid in; the runtime gives it to the block's author."""
    received: int
    """rao that left the pool for the caller."""
    refund: int
    """rao of the offer not used because of the limit price."""


def stake(
    pool: Pool, tao: int, *, limit_price: int | None = None, partial: bool = False, fee_rate: int = FEE_RATE
) -> Swap:
    """Buy alpha for `tao` rao, fee included.

    limit_price: highest price after the swap, rao per alpha (None: any). Beyond it the swap is cut to what the limit
    allows if `partial`, else refused.

    Raises PoolError: `ReservesTooLow` (empty pool, or nothing would be paid out), `SwapInputTooLarge`,
    `PriceLimitExceeded` (the price is already beyond the limit), `SlippageTooHigh` (not `partial`).
    """
    room = None
    if limit_price is not None:
        _check_limit(pool.price_rao <= limit_price, pool, limit_price)
        room = isqrt(pool.tao * pool.alpha * limit_price // RAO) - pool.tao
    paid, fee, received, refund = _swap(pool.tao, pool.alpha, tao, room, partial, fee_rate)
    return Swap(replace(pool, tao=pool.tao + paid, alpha=pool.alpha - received), paid, fee, received, refund)


def unstake(
    pool: Pool, alpha: int, *, limit_price: int | None = None, partial: bool = False, fee_rate: int = FEE_RATE
) -> Swap:
    """Sell `alpha` rao for TAO, fee included.

    limit_price: lowest price after the swap, rao per alpha (None: any); otherwise as `stake`, and the same errors.
    """
    room = None
    if limit_price:
        _check_limit(pool.price_rao >= limit_price, pool, limit_price)
        room = isqrt(pool.tao * pool.alpha * RAO // limit_price) - pool.alpha
    paid, fee, received, refund = _swap(pool.alpha, pool.tao, alpha, room, partial, fee_rate)
    return Swap(replace(pool, alpha=pool.alpha + paid, tao=pool.tao - received), paid, fee, received, refund)


def _check_limit(within: bool, pool: Pool, limit_price: int) -> None:
    if not within:
        raise PoolError("PriceLimitExceeded", f"the price {pool.price_rao} is already beyond the limit {limit_price}")


def _swap(
    reserve_in: int, reserve_out: int, offer: int, room: int | None, partial: bool, fee_rate: int
) -> tuple[int, int, int, int]:
    """(paid, fee, received, refund) for `offer`, of which at most `room` may enter the pool after the fee."""
    if offer < 0:
        raise ValueError(f"amount must not be negative, got {offer}")
    if reserve_in <= 0 or reserve_out <= 0:
        raise PoolError("ReservesTooLow", "the pool is empty")
    fee = offer * fee_rate // U16_MAX
    paid = offer - fee
    if room is not None and paid > room:
        if not partial:
            raise PoolError("SlippageTooHigh", f"the limit price allows {max(room, 0)} of {paid} rao")
        paid = max(room, 0)
        fee = paid * fee_rate // (U16_MAX - fee_rate)
    if paid > reserve_in * MAX_INPUT_MULTIPLE:
        raise PoolError("SwapInputTooLarge", f"{paid} rao is over {MAX_INPUT_MULTIPLE} times the pool's reserve")
    received = reserve_out * paid // (reserve_in + paid)
    if paid and not received:
        raise PoolError("ReservesTooLow", f"{paid} rao buys nothing")
    return paid, fee, received, offer - fee - paid


def decay_burn(burn: int, half_life: int = BURN_HALF_LIFE, min_burn: int = MIN_BURN, max_burn: int = MAX_BURN) -> int:
    """Registration price (rao) one block later: times 2**(-1 / half_life), within its bounds.

    half_life 0 means no decay. Exact in the runtime's Q32 arithmetic.
    """
    return min(max((burn * _decay_factor(half_life)) >> 32, min_burn), max_burn)


def bump_burn(burn: int, increase: float = BURN_INCREASE, min_burn: int = MIN_BURN, max_burn: int = MAX_BURN) -> int:
    """Registration price (rao) right after a registration: times `increase` (never below 1), within its bounds."""
    return min(max(int(burn * max(Fraction(increase), Fraction(1))), min_burn), max_burn)


@lru_cache(maxsize=64)
def _decay_factor(half_life: int) -> int:
    """The largest Q32 factor whose `half_life`-th power, each product rounded down, is at most one half."""
    one = 1 << 32
    if half_life == 0:
        return one
    low, high = 0, one
    while low + 1 < high:
        middle = (low + high) // 2
        if _power(middle, half_life) > one // 2:
            high = middle
        else:
            low = middle
    return low


def _power(base: int, exponent: int) -> int:
    result = 1 << 32
    while exponent:
        if exponent & 1:
            result = (result * base) >> 32
        exponent >>= 1
        base = (base * base) >> 32
    return result
