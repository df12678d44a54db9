"""The alpha pool and the registration price: conservation, rounding, limits."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from subnet.localnet.consensus.pool import RAO, Pool, PoolError, bump_burn, decay_burn, stake, unstake

reserve = st.integers(10**6, 10**16)
amount = st.integers(1, 10**16)


@settings(max_examples=60, deadline=None)
@given(tao=reserve, alpha=reserve, offer=amount, buying=st.booleans())
def test_swap_conserves_and_never_lowers_the_product(tao: int, alpha: int, offer: int, buying: bool) -> None:
    pool = Pool(tao, alpha)
    try:
        swap = (stake if buying else unstake)(pool, offer)
    except PoolError as error:
        assert error.name in {"SwapInputTooLarge", "ReservesTooLow"}
        return
    bought, spent = alpha - swap.pool.alpha, swap.pool.tao - tao
    entered, left = (spent, bought) if buying else (-bought, -spent)
    assert (entered, left) == (swap.paid, swap.received) and swap.paid + swap.fee + swap.refund == offer
    assert swap.pool.tao * swap.pool.alpha >= tao * alpha
    assert (swap.pool.tao * swap.pool.alpha - tao * alpha) < (swap.pool.tao if buying else swap.pool.alpha)


@settings(max_examples=40, deadline=None)
@given(tao=reserve, alpha=reserve, offer=st.integers(10**3, 10**15))
def test_round_trip_never_gains(tao: int, alpha: int, offer: int) -> None:
    try:
        bought = stake(Pool(tao, alpha), offer)
        sold = unstake(bought.pool, bought.received)
    except PoolError:
        assume(False)
    assert sold.received <= offer


@settings(max_examples=60, deadline=None)
@given(tao=reserve, alpha=reserve, offer=amount, percent=st.integers(1, 400), buying=st.booleans())
def test_partial_fill_stops_at_the_limit(tao: int, alpha: int, offer: int, percent: int, buying: bool) -> None:
    pool = Pool(tao, alpha)
    limit = pool.price_rao * (100 + percent) // 100 if buying else pool.price_rao * 100 // (100 + percent)
    assume(limit > 0)
    try:
        swap = (stake if buying else unstake)(pool, offer, limit_price=limit, partial=True)
    except PoolError:
        assume(False)
    within = swap.pool.price_rao <= limit if buying else swap.pool.price * RAO >= limit - 1
    assert within and swap.paid + swap.fee + swap.refund == offer and swap.refund >= 0
    if swap.refund:
        with pytest.raises(PoolError) as refused:
            (stake if buying else unstake)(pool, offer, limit_price=limit)
        assert refused.value.name == "SlippageTooHigh"


def test_known_swap() -> None:
    swap = stake(Pool(1000 * RAO, 1000 * RAO), 10 * RAO, fee_rate=0)
    assert swap.received == 9_900_990_099 and swap.pool.price_rao == 1_020_099_999
    assert stake(Pool(1000 * RAO, 1000 * RAO), 10 * RAO).fee == 5_035_477


def test_refusals() -> None:
    with pytest.raises(PoolError, match="empty"):
        stake(Pool(0, 0), 1)
    with pytest.raises(PoolError, match="already beyond"):
        stake(Pool(2 * RAO, RAO), 1, limit_price=RAO)
    with pytest.raises(PoolError, match="1000 times"):
        unstake(Pool(RAO, RAO), 2000 * RAO)
    with pytest.raises(PoolError, match="buys nothing"):
        stake(Pool(10**12, 10), 5, fee_rate=0)
    with pytest.raises(ValueError, match="negative"):
        stake(Pool(1, 1), -1)


@pytest.mark.parametrize("half_life", [1, 2, 360, 7200])
def test_burn_halves_in_its_half_life(half_life: int) -> None:
    burn = 10 * RAO
    for _ in range(half_life):
        burn = decay_burn(burn, half_life)
    assert abs(burn - 5 * RAO) / (5 * RAO) < 1e-4


def test_burn_bounds_and_bump() -> None:
    assert decay_burn(500_000) == 500_000 and decay_burn(RAO, half_life=0) == RAO
    assert bump_burn(RAO) == 1_260_000_000 and bump_burn(RAO, 0.5) == RAO
    assert bump_burn(99 * RAO) == 100 * RAO and bump_burn(1) == 500_000
