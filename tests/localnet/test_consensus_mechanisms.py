"""Emission over mechanisms, and their results as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.localnet.consensus.mechanisms import combine, split
from subnet.localnet.consensus.yuma import EpochInputs, EpochResult, epoch

U16_MAX = 0xFFFF


@given(st.integers(0, 10**15), st.integers(1, 16), st.data())
def test_nothing_is_lost_in_the_split(amount: int, count: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, U16_MAX), min_size=count - 1, max_size=count - 1)))
    shares = [after - before for before, after in zip([0, *cuts], [*cuts, U16_MAX], strict=True)]
    for given_shares in (None, shares):
        parts = split(amount, given_shares, count)
        assert len(parts) == count and sum(parts) == amount and min(parts) >= 0


def test_the_first_gets_what_rounding_leaves_and_odd_shares_count_as_none() -> None:
    assert split(10, None, 3) == [4, 3, 3]
    assert split(100, [U16_MAX, 0], 2) == [100, 0]
    assert split(101, [32768, 32767], 2) == [51, 50]
    assert split(10, [U16_MAX], 2) == [5, 5]


def of_a_row(row: dict[int, int], amount: int) -> EpochResult:
    """Validator 0 weighs miners 1 and 2."""
    return epoch(
        EpochInputs(
            alpha_stake=[10**12, 0, 0],
            root_stake=[0] * 3,
            last_update=[1] * 3,
            registered_at=[0] * 3,
            weights=[list(row.items()), [], []],
            bonds=[[]] * 3,
            validator_permit=[True, False, False],
            current_block=2,
            tempo=1,
            rao_emission=amount,
        )
    )


def test_one_mechanism_is_the_subnet() -> None:
    alone = of_a_row({1: 3, 2: 1}, 10**9)
    both = combine([alone], [10**9])
    for column in ("active", "validator_permit", "consensus", "validator_trust", "dividends", "emission",
                   "server_emission", "validator_emission"):  # fmt: skip
        assert getattr(both, column) == getattr(alone, column).tolist()


def test_emissions_add_up_and_columns_are_weighted() -> None:
    amounts = [3 * 10**9, 10**9]
    first, second = of_a_row({1: 1}, amounts[0]), of_a_row({2: 1}, amounts[1])
    both = combine([first, second], amounts)
    assert both.server_emission == [0, 1_500_000_000, 500_000_000]
    assert both.validator_emission == [2_000_000_000, 0, 0]
    assert both.consensus == [0, 49_151, 16_383] and both.dividends[0] == 49_151 + 16_383
    assert both.emission == [(3 * 1_500_000_000 + 500_000_000) // 4, 1_125_000_000, 125_000_000]


@pytest.mark.parametrize("column", ["active", "validator_permit"])
def test_either_mechanism_makes_one_active_or_permitted(column: str) -> None:
    result = of_a_row({1: 1}, 0)
    changed: Any = {column: ~getattr(result, column)}
    assert all(getattr(combine([result, replace(result, **changed)], [0, 0]), column))


def test_without_emission_the_first_stands() -> None:
    first, second = of_a_row({1: 1}, 0), of_a_row({2: 1}, 0)
    assert combine([first, second], [0, 0]).consensus == first.consensus.tolist()
