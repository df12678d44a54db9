"""Yuma consensus against vectors from the chain's own tests, and its invariants on random subnets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.localnet.consensus import fixed
from subnet.localnet.consensus.yuma import EpochInputs, EpochResult, epoch, stake_weights, weighted_median

EMISSION = 1_000_000_000
U16 = 65_535


def subnet(stakes: list[int], **changes: object) -> EpochInputs:
    n = len(stakes)
    empty: list[tuple[int, int]] = []
    state = EpochInputs(
        alpha_stake=stakes,
        root_stake=[0] * n,
        last_update=[1] * n,
        registered_at=[0] * n,
        weights=[empty] * n,
        bonds=[empty] * n,
        validator_permit=[True] * n,
        current_block=2,
        tempo=1,
        rao_emission=EMISSION,
    )
    return replace(state, **changes)  # type: ignore[arg-type]


def bond(result: EpochResult, validator: int, server: int) -> int:
    return dict(result.bonds[validator]).get(server, 0)


def test_self_weights_pay_by_stake() -> None:
    """test_10_graph: ten equal hotkeys with only self-weights earn 99999999 rao each and no incentive."""
    result = epoch(subnet([1] * 10, weights=[[(i, U16)] for i in range(10)], validator_permit=[False] * 10))
    assert result.emission.tolist() == [99_999_999] * 10
    assert not result.incentive.any() and not result.consensus.any() and not result.dividends.any()
    assert result.validator_permit.all()


def test_512_uids() -> None:
    """test_512_graph: 64 validators agree on 448 servers; after a few epochs every figure is known exactly."""
    row = [(uid, U16) for uid in range(64, 512)]
    state = subnet([328_125_000_000_000] * 64 + [0] * 448, yuma3=False, max_validators=64)
    state = replace(state, weights=[row] * 64 + [[]] * 448)
    result = epoch(state)
    for block in (3, 4):
        result = epoch(replace(state, bonds=result.bonds, current_block=block, last_epoch_block=block - 1))
    assert set(result.dividends[:64]) == {1023} and set(result.incentive[64:]) == {146}
    assert set(result.consensus[64:]) == {146} and not result.consensus[:64].any()
    assert set(result.emission[:64]) == {7_812_500} and set(result.emission[64:]) == {1_116_071}
    assert bond(result, 5, 64) == U16 and bond(result, 5, 0) == 0 and result.bonds[64] == ()


WEIGHTS = [(4, 16_383), (5, 32_767), (6, 49_149), (7, 65_535)]
BONDS_EPOCHS: list[tuple[dict[int, list[tuple[int, int]]], int, list[int], list[int]]] = [
    # (weights set before the epoch, server whose bonds are read, bonds of validators 0-3, emission per uid)
    (
        {0: WEIGHTS, 1: WEIGHTS, 2: WEIGHTS, 3: WEIGHTS},
        4,
        [16_383, 32_767, 49_151, 65_535],
        [49_999_998, 99_999_999, 150_000_000, 200_000_001, 49_998_779, 100_000_610, 149_996_337, 200_004_272],
    ),
    (
        {0: [(0, U16)]},
        4,
        [14_582, 32_767, 49_151, 65_535],
        [44_998_351, 101_110_561, 151_667_215, 202_223_870, 49_998_779, 100_000_610, 149_996_337, 200_004_272],
    ),
    (
        {1: [(1, U16)]},
        4,
        [12_603, 28_321, 49_151, 65_535],
        [40_496_805, 90_999_783, 157_929_636, 210_573_773, 49_998_779, 100_000_610, 149_996_337, 200_004_272],
    ),
    (
        {2: [(2, U16)]},
        7,
        [12_602, 28_320, 49_150, 65_535],
        [99_999_999, 199_999_999, 299_999_999, 399_999_999, 0, 0, 0, 0],
    ),
    (
        {2: [(7, U16)]},
        7,
        [10_951, 24_609, 49_150, 65_535],
        [36_443_733, 81_898_628, 163_565_493, 218_092_144, 0, 0, 0, 500_000_000],
    ),
    ({}, 7, [9_559, 21_482, 49_150, 65_535], [32_799_427, 73_706_612, 168_638_129, 224_855_830, 0, 0, 0, 500_000_000]),
    ({}, 7, [8_376, 18_824, 49_150, 65_535], [29_518_068, 66_336_137, 173_203_134, 230_942_659, 0, 0, 0, 500_000_000]),
]


def test_bonds_original() -> None:
    """test_bonds: bonds, emission and trust of seven epochs of the original rule, exact to the unit."""
    weights: list[list[tuple[int, int]]] = [[] for _ in range(8)]
    state = subnet([1, 2, 3, 4, 0, 0, 0, 0], yuma3=False, max_validators=8)
    for block, (changes, server, bonds, emission) in enumerate(BONDS_EPOCHS, start=2):
        for uid, row in changes.items():
            weights[uid] = row
        result = epoch(replace(state, weights=weights, current_block=block))
        assert [bond(result, uid, server) for uid in range(4)] == bonds, f"epoch at block {block}"
        assert result.emission.tolist() == emission, f"epoch at block {block}"
        state = replace(state, bonds=result.bonds, validator_permit=result.validator_permit.tolist())
    assert result.trust[7] == int(0.6087041323 * U16) and result.incentive[7] == U16


def test_yuma3_dividends_and_bonds() -> None:
    """test_yuma_3_liquid_alpha_disabled: dividends and bonds over six epochs within the chain's 1e-3."""
    dividends = [
        [0.3300, 0.3300, 0.3400],
        [0.3300, 0.3300, 0.3400],
        [0.3734, 0.3734, 0.2532],
        [0.3611, 0.3611, 0.2779],
        [0.3541, 0.3541, 0.2919],
        [0.3495, 0.3495, 0.3009],
    ]
    of_c = [(0.0250, 0.0), (0.0494, 0.0), (0.0481, 0.0250), (0.0719, 0.0244), (0.0951, 0.0238), (0.1178, 0.0232)]
    state = subnet([33, 33, 34, 0, 0], max_validators=3, bonds_penalty=0, bonds_moving_average=975_000)
    for number, (expected, bonds_c) in enumerate(zip(dividends, of_c, strict=True)):
        third = [(3, 0), (4, U16)] if number == 2 else [(3, U16), (4, 0)]
        weights = [[(3, U16), (4, 0)], [(3, U16), (4, 0)], third, [], []]
        result = epoch(replace(state, weights=weights, current_block=number + 2))
        np.testing.assert_allclose(result.dividends[:3] / U16, expected, atol=1e-3)
        np.testing.assert_allclose([bond(result, 2, s) / U16 for s in (3, 4)], bonds_c, atol=1e-3)
        state = replace(state, bonds=result.bonds)


@pytest.mark.parametrize(
    ("stake", "scores", "majority", "expected"),
    [
        # medians by hand: the largest score that a majority of the stake gives, or more
        ([0.51, 0.49], [0.4, 0.9], 0.5, 0.4),
        ([0.49, 0.51], [0.4, 0.9], 0.5, 0.9),
        ([0.2, 0.2, 0.2, 0.4], [0.1, 0.2, 0.3, 0.0], 0.5, 0.1),
        ([0.2, 0.2, 0.2, 0.4], [0.1, 0.2, 0.3, 0.0], 0.7, 0.0),
        ([1.0, 0.0], [0.3, 1.0], 0.5, 0.3),
    ],
)
def test_weighted_median(stake: list[float], scores: list[float], majority: float, expected: float) -> None:
    def q32(values: list[float]) -> fixed.Q32:
        return (np.array(values) * fixed.ONE).astype(np.int64)

    median = weighted_median(q32(stake), q32(scores)[:, None], int(majority * fixed.ONE))
    assert median.tolist() == q32([expected]).tolist()


def test_minority_is_clipped_and_loses() -> None:
    """A small validator that rates alone neither moves incentive nor keeps its dividends."""
    weights = [[(3, 60_000), (4, 6_000)], [(3, 60_000), (4, 6_000)], [(4, U16)], [], []]
    result = epoch(subnet([50, 40, 10, 0, 0], weights=weights))
    np.testing.assert_allclose(result.consensus[3:] / U16, [10 / 11, 1 / 11], atol=1e-4)
    assert result.validator_trust[2] < result.validator_trust[0] // 5
    assert result.dividends[2] / U16 < 0.1 < result.dividends[1] / U16


def test_stale_inactive_and_unpermitted_weights_do_not_count() -> None:
    weights = [[(2, U16)], [(3, U16)], [], []]
    state = subnet([60, 40, 0, 0], weights=weights, current_block=100, last_update=[90] * 4, tempo=10)
    assert epoch(state).incentive[2] == U16
    assert epoch(replace(state, registered_at=[0, 0, 90, 0])).incentive[2] == 0, "uid 2 was replaced after the weights"
    inactive = epoch(replace(state, last_update=[5, 90, 90, 90], activity_cutoff=50))
    assert inactive.incentive[3] == U16 and not inactive.active[0]
    assert epoch(replace(state, validator_permit=[False, True, True, True])).incentive[3] == U16


def test_owner_rules() -> None:
    state = subnet([0, 100], weights=[[], [(1, U16)]], validator_permit=[False, True], max_validators=1)
    result = epoch(replace(state, owner_uid=0))
    assert result.validator_permit.tolist() == [True, True] and result.incentive[1] == 0
    assert epoch(replace(state, owner_uid=1)).incentive[1] == U16, "only the owner may weigh itself"
    assert epoch(replace(state, stake_threshold=101)).stake_weight[1] == 0
    assert epoch(replace(state, stake_threshold=101, owner_uid=1)).stake_weight[1] == U16


def test_bonds_to_a_replaced_uid_are_void() -> None:
    state = subnet([10, 10, 0], weights=[[(2, U16)], [], []], current_block=50, last_update=[45] * 3, tempo=10)
    state = replace(state, bonds=[[(2, U16)], [(2, U16)], []], registered_at=[0, 0, 41], last_epoch_block=40)
    assert epoch(state).dividends[1] == 0
    assert epoch(replace(state, registered_at=[0, 0, 40])).dividends[1] > 0


def test_root_stake_counts_by_tao_weight() -> None:
    assert stake_weights([5, 0], [0, 7], 2**64 - 1) == [5 << 32, 7 << 32]
    result = epoch(subnet([100, 0], root_stake=[0, 1000], tao_weight=3_320_413_933_267_719_290))
    np.testing.assert_allclose(result.stake_weight / U16, [100 / 280, 180 / 280], atol=1e-4)


def test_rejects_inconsistent_state() -> None:
    with pytest.raises(ValueError, match="last_update has 1 entries for 2 uids"):
        epoch(subnet([1, 2], last_update=[1]))
    with pytest.raises(ValueError, match="owner_uid 2"):
        epoch(subnet([1, 2], owner_uid=2))
    with pytest.raises(ValueError, match="kappa"):
        epoch(subnet([1, 2], kappa=70_000))


def random_subnet(seed: int, n: int, yuma3: bool) -> EpochInputs:
    rng = np.random.default_rng(seed)
    stakes = (rng.permutation(n) * 10**9 + rng.integers(0, 10**6)).tolist()  # distinct: permits have no ties

    def rows(density: float) -> list[list[tuple[int, int]]]:
        return [[(t, int(rng.integers(0, U16 + 1))) for t in range(n) if rng.random() < density] for _ in range(n)]

    return subnet(
        stakes,
        root_stake=rng.integers(0, 10**9, n).tolist(),
        tao_weight=2**62,
        weights=rows(0.6),
        bonds=rows(0.4),
        last_update=rng.integers(900, 1000, n).tolist(),
        registered_at=rng.integers(0, 950, n).tolist(),
        validator_permit=(rng.random(n) < 0.7).tolist(),
        current_block=1000,
        activity_cutoff=80,
        tempo=60,
        max_validators=max(1, n // 2),
        bonds_penalty=int(rng.integers(0, U16 + 1)),
        yuma3=yuma3,
    )


def permute(state: EpochInputs, order: list[int]) -> EpochInputs:
    """The same subnet with uid order[i] renamed to i."""
    new_uid = {old: new for new, old in enumerate(order)}

    def rows(old: object) -> list[list[tuple[int, int]]]:
        return [[(new_uid[t], v) for t, v in old[uid]] for uid in order]  # type: ignore[index]

    columns = ("alpha_stake", "root_stake", "last_update", "registered_at", "validator_permit")
    moved = {name: [getattr(state, name)[uid] for uid in order] for name in columns}
    return replace(state, **moved, weights=rows(state.weights), bonds=rows(state.bonds))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12), yuma3=st.booleans())
def test_invariants(seed: int, n: int, yuma3: bool) -> None:
    state = random_subnet(seed, n, yuma3)
    result = epoch(state)
    order = np.random.default_rng(seed + 1).permutation(n).tolist()
    moved = epoch(permute(state, order))
    columns = ("active", "stake_weight", "consensus", "incentive", "dividends", "validator_permit", "emission", "trust")
    for name in columns:
        assert getattr(moved, name).tolist() == getattr(result, name)[order].tolist(), name

    dust = n + 1
    assert EMISSION - dust <= result.emission.sum() <= EMISSION or not result.stake_weight.any()
    both = result.server_emission + result.validator_emission
    assert (np.abs(both - result.emission) <= 2).all()
    for column in (result.incentive, result.dividends):
        assert column.sum() == 0 or U16 - dust <= int(column.sum(dtype=np.int64)) <= U16
    assert not (result.consensus > U16).any() and (result.validator_permit.sum() <= state.max_validators)
    assert all(row == () for row, permit in zip(result.bonds, result.validator_permit, strict=True) if not permit)
