"""Weights: each check on its own, and commit-reveal by hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.localnet.pallets.weights import U16_MAX, hash_weights, upscale, within_limit
from tests.localnet.conftest import Net


def ready(net: Net) -> int:
    """A subnet whose uid 1 ("a_hot") has a permit and may set weights, and whose uid 2 ("b_hot") has neither."""
    netuid = net.subnet()
    net.sudo("AdminUtils", "sudo_set_max_allowed_validators", netuid=netuid, max_allowed_validators=1)
    net.register(netuid, "a", "b")
    net.stake("a", netuid, 20)
    net.produce(12)
    return netuid


def set_weights(net: Net, netuid: int, who: str = "a_hot", **changes: object) -> str | None:
    call = {"netuid": netuid, "dests": [2], "weights": [1], "version_key": 0, **changes}
    return net.do(who, "SubtensorModule", "set_weights", **call).error


def test_a_validator_sets_weights_for_nothing(net: Net) -> None:
    netuid = ready(net)
    call = {"netuid": netuid, "dests": [0, 2], "weights": [1, 4], "version_key": 0}
    done = net.do("a_hot", "SubtensorModule", "set_weights", **call)
    assert done.event("WeightsSet") == (netuid, 1)
    assert not any(name == "TransactionFeePaid" for _, name, _ in done.events)
    assert [tuple(pair) for pair in net.get("Weights", netuid, 1)] == [(0, 16384), (2, U16_MAX)]
    assert net.get("LastUpdate", netuid)[1] == net.chain.head.number


def test_refusals(net: Net) -> None:
    netuid = ready(net)
    assert set_weights(net, 99) == "MechanismDoesNotExist"
    assert set_weights(net, 0) == "CanNotSetRootNetworkWeights"
    assert set_weights(net, netuid, who="stranger") == "HotKeyNotRegisteredInSubNet"
    assert set_weights(net, netuid, who="b_hot", dests=[1]) == "NeuronNoValidatorPermit"
    assert set_weights(net, netuid, dests=[1, 2]) == "WeightVecNotEqualSize"
    assert set_weights(net, netuid, dests=[2, 2], weights=[1, 1]) == "DuplicateUids"
    assert set_weights(net, netuid, dests=[7]) == "UidVecContainInvalidOne"
    assert set_weights(net, netuid, dests=[0, 1, 2, 3], weights=[1] * 4) == "UidsLengthExceedUidsInSubNet"
    net.sudo("AdminUtils", "sudo_set_weights_version_key", netuid=netuid, weights_version_key=9)
    assert set_weights(net, netuid, version_key=8) == "IncorrectWeightVersionKey"
    net.sudo("AdminUtils", "sudo_set_min_allowed_weights", netuid=netuid, min_allowed_weights=2)
    assert set_weights(net, netuid, version_key=9) == "WeightVecLengthIsLow"
    net.sudo("AdminUtils", "sudo_set_stake_threshold", min_stake=10**15)
    assert set_weights(net, netuid, version_key=9) == "NotEnoughStakeToSetWeights"
    net.sudo("AdminUtils", "sudo_set_stake_threshold", min_stake=0)
    assert set_weights(net, netuid, dests=[0, 2], weights=[1, 1], version_key=10) is None
    assert set_weights(net, netuid, dests=[0, 2], weights=[1, 1], version_key=10) == "SettingWeightsTooFast"
    net.produce(5)
    assert set_weights(net, netuid, dests=[0, 2], weights=[1, 1], version_key=10) is None


def test_anybody_may_weigh_only_itself_and_the_owner_anybody(net: Net) -> None:
    netuid = ready(net)
    assert set_weights(net, netuid, who="b_hot", dests=[2]) is None
    assert set_weights(net, netuid, who="owner_hot", dests=[1, 2], weights=[5, 5]) is None


def test_the_weight_limit_counts_shares(net: Net) -> None:
    netuid = ready(net)
    net.chain.ledger.put("SubtensorModule", "MaxWeightsLimit", (netuid,), (U16_MAX + 1) // 2)
    assert set_weights(net, netuid, dests=[0, 2], weights=[1, 2]) == "MaxWeightExceeded"
    assert set_weights(net, netuid, dests=[0, 2], weights=[3, 3]) is None


def test_a_batch_sets_what_it_can(net: Net) -> None:
    netuid = ready(net)
    call = {"netuids": [netuid, 99], "weights": [[(2, 1)], [(0, 1)]], "version_keys": [0, 0]}
    done = net.do("a_hot", "SubtensorModule", "batch_set_weights", **call)
    names = [name for pallet, name, _ in done.events if pallet == "SubtensorModule"]
    assert names == ["WeightsSet", "BatchCompletedWithErrors", "BatchWeightItemFailed", "BatchWeightsCompleted"]
    assert net.error_name(done.event("BatchWeightItemFailed")[1]) == "MechanismDoesNotExist"


def test_commit_and_reveal(net: Net) -> None:
    netuid = ready(net)
    secret = {"uids": [2], "values": [7], "salt": [1, 2, 3], "version_key": 0}
    digest = hash_weights(net.address("a_hot"), netuid, *secret.values())
    commit = {"netuid": netuid, "commit_hash": digest}
    reveal = {"netuid": netuid, **secret}
    assert net.do("a_hot", "SubtensorModule", "commit_weights", **commit).error == "CommitRevealDisabled"
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=True)
    assert set_weights(net, netuid) == "CommitRevealEnabled"
    assert net.do("a_hot", "SubtensorModule", "reveal_weights", **reveal).error == "NoWeightsCommitFound"
    net.next_epoch(netuid)
    assert net.do("a_hot", "SubtensorModule", "commit_weights", **commit).error is None
    assert net.do("a_hot", "SubtensorModule", "commit_weights", **commit).error == "CommittingWeightsTooFast"
    assert net.do("a_hot", "SubtensorModule", "reveal_weights", **reveal).error == "RevealTooEarly"
    wrong = {**reveal, "salt": [9]}
    assert net.do("a_hot", "SubtensorModule", "reveal_weights", **wrong).error == "InvalidRevealCommitHashNotMatch"
    net.next_epoch(netuid)
    assert net.do("a_hot", "SubtensorModule", "reveal_weights", **reveal).event("WeightsRevealed")[2] == digest
    assert [tuple(pair) for pair in net.get("Weights", netuid, 1)] == [(2, U16_MAX)]
    assert net.do("a_hot", "SubtensorModule", "commit_weights", **commit).error is None
    net.next_epoch(netuid)
    net.next_epoch(netuid)
    assert net.do("a_hot", "SubtensorModule", "reveal_weights", **reveal).error == "ExpiredWeightCommit"


@given(st.lists(st.integers(0, U16_MAX), max_size=20))
def test_upscaling_keeps_order_and_reaches_the_top(values: list[int]) -> None:
    scaled = upscale(values)
    assert all(0 <= value <= U16_MAX for value in scaled)
    if any(values):
        assert max(scaled) == U16_MAX and sorted(range(len(values)), key=values.__getitem__) == sorted(
            range(len(values)), key=lambda index: (scaled[index], values[index])
        )


@pytest.mark.parametrize(
    ("values", "limit", "fits"), [([], 1, True), ([0, 0], 1, True), ([5], 65535, True), ([5], 65534, False)]
)
def test_limits_at_the_edges(values: list[int], limit: int, fits: bool) -> None:
    assert within_limit(values, limit) is fits
