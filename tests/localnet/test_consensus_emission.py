"""Emission: halvings, accrual and the split at an epoch, each exact to the rao."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.localnet.consensus.emission import (
    MAX_SUPPLY,
    RAO,
    Pending,
    accrue,
    apportion,
    block_emission,
    distribute,
    root_proportion,
    split_dividends,
)

rao = st.integers(0, 10**16)


@pytest.mark.parametrize(
    ("issued", "emission"),
    [
        (0, RAO),
        (10_500_000 * RAO - 1, RAO),
        (10_500_000 * RAO, RAO // 2),
        (15_750_000 * RAO - 1, RAO // 2),
        (15_750_000 * RAO, RAO // 4),
        (18_375_000 * RAO, RAO // 8),
        (MAX_SUPPLY - 1, 0),
        (MAX_SUPPLY, 0),
    ],
)
def test_halvings(issued: int, emission: int) -> None:
    assert block_emission(issued) == emission


def test_negative_issuance_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        block_emission(-1)


@settings(max_examples=60, deadline=None)
@given(total=rao, shares=st.lists(rao, max_size=12))
def test_apportion_is_exact_and_fair(total: int, shares: list[int]) -> None:
    parts = apportion(total, shares)
    whole = sum(shares)
    assert sum(parts) == (total if whole else 0)
    assert all(abs(part * whole - total * share) < whole for part, share in zip(parts, shares, strict=True) if whole)


def test_one_block_splits_18_41_41() -> None:
    pending = accrue(Pending(), RAO)
    assert pending == Pending(owner=179_995_422, miners=410_002_289, validators=410_002_289)


@settings(max_examples=40, deadline=None)
@given(blocks=st.lists(st.integers(0, RAO), max_size=20), percent=st.integers(0, 100))
def test_accrual_conserves(blocks: list[int], percent: int) -> None:
    pending = Pending()
    for alpha_out in blocks:
        pending = accrue(pending, alpha_out, root=Fraction(percent, 100))
    assert pending.total == sum(blocks)


def test_root_proportion() -> None:
    assert root_proportion(0, 2**64 - 1, 0) == 0
    assert root_proportion(100, 2**64 - 1, 300) == Fraction(1, 4)


PENDING = Pending(owner=180, miners=410, validators=400, root=10)


def test_no_incentive_pays_validators_the_miners_half() -> None:
    payout = distribute(PENDING, [0, 0], [3, 1], alpha_stake=[3, 1], root_stake=[0, 0])
    assert payout.validators == [615, 205] and payout.miners == [0, 0] and payout.total == PENDING.total


def test_owner_incentive_is_withheld() -> None:
    payout = distribute(PENDING, [1, 1], [0, 5], owner_uids={0}, alpha_stake=[0, 9], root_stake=[0, 0])
    assert payout.withheld == 205 and payout.miners == [0, 205] and payout.total == PENDING.total


def test_root_dividends_follow_root_stake() -> None:
    payout = distribute(PENDING, [1, 0], [0, 8], alpha_stake=[0, 5], root_stake=[0, 5], tao_weight=2**64 - 1)
    assert payout.root == [0, 10] and payout.validators == [0, 400] and payout.total == PENDING.total


def test_nobody_entitled() -> None:
    payout = distribute(PENDING, [0], [0], alpha_stake=[0], root_stake=[0])
    assert payout.unclaimed == 820 and payout.owner == 180


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n=st.integers(1, 8))
def test_distribution_conserves(data: st.DataObject, n: int) -> None:
    column = st.lists(st.integers(0, 10**12), min_size=n, max_size=n)
    pending = Pending(*data.draw(st.tuples(rao, rao, rao, rao)))
    payout = distribute(
        pending,
        data.draw(column),
        data.draw(column),
        owner_uids=data.draw(st.sets(st.integers(0, n - 1))),
        alpha_stake=data.draw(column),
        root_stake=data.draw(column),
        tao_weight=2**62,
    )
    assert payout.total == pending.total
    assert min(payout.miners + payout.validators + payout.root + [payout.withheld, payout.unclaimed]) >= 0


@settings(max_examples=40, deadline=None)
@given(amount=rao, stakes=st.dictionaries(st.sampled_from("abcdef"), rao, max_size=6), take=st.integers(0, 65_535))
def test_dividends_reach_the_stakers(amount: int, stakes: dict[str, int], take: int) -> None:
    gains = split_dividends(amount, "a", stakes, take)
    assert sum(gains.values()) == amount and gains["a"] >= amount * take // 65_535
    assert set(gains) == {*stakes, "a"}
