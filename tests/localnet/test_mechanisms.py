"""Two mechanisms in one subnet: opened and closed by its owner, weighed, paid and committed to apart."""

from __future__ import annotations

from typing import Any

import pytest

from subnet.localnet.pallets.mechanisms import STRIDE
from subnet.localnet.pallets.weights import U16_MAX, hash_weights
from tests.localnet.conftest import Net
from tests.localnet.test_timelock import PULSES, seal


def ready(net: Net, count: int = 2) -> int:
    """A subnet with two mechanisms, opened by its owner; uid 1 ("a_hot") has the stake, uids 2 and 3 none."""
    netuid = net.subnet()
    net.register(netuid, "a", "b", "c")
    net.stake("a", netuid, 20)
    assert owner(net, "sudo_set_max_allowed_uids", netuid=netuid, max_allowed_uids=128) is None
    assert owner(net, "sudo_set_mechanism_count", netuid=netuid, mechanism_count=count) is None
    net.next_epoch(netuid)
    return netuid


def owner(net: Net, name: str, **arguments: Any) -> str | None:
    return net.do("owner", "AdminUtils", name, **arguments).error


def weigh(net: Net, netuid: int, mecid: int, target: int, who: str = "a_hot") -> str | None:
    call = {"netuid": netuid, "mecid": mecid, "dests": [target], "weights": [1], "version_key": 0}
    return net.do(who, "SubtensorModule", "set_mechanism_weights", **call).error


def test_the_owner_opens_splits_and_closes(net: Net) -> None:
    netuid = net.subnet()
    net.fund("a")
    count, split = "sudo_set_mechanism_count", "sudo_set_mechanism_emission_split"
    assert owner(net, count, netuid=netuid, mechanism_count=2) == "TooManyUIDsPerMechanism"
    assert owner(net, "sudo_set_max_allowed_uids", netuid=netuid, max_allowed_uids=128) is None
    for wrong in (0, 3, 255):
        assert owner(net, count, netuid=netuid, mechanism_count=wrong) == "InvalidValue"
    assert net.do("a", "AdminUtils", count, netuid=netuid, mechanism_count=2).error == "BadOrigin"
    assert owner(net, count, netuid=netuid, mechanism_count=2) is None
    assert owner(net, "sudo_set_max_allowed_uids", netuid=netuid, max_allowed_uids=129) == "TooManyUIDsPerMechanism"
    for bad in ([], [U16_MAX], [1, 2], [U16_MAX, 1]):
        assert owner(net, split, netuid=netuid, maybe_split=bad) == "InvalidValue"
    assert owner(net, split, netuid=netuid, maybe_split=[60000, 5535]) is None
    assert net.get("MechanismEmissionSplit", netuid) == [60000, 5535]
    assert owner(net, count, netuid=netuid, mechanism_count=2) is None
    assert net.get("MechanismEmissionSplit", netuid) == [60000, 5535]
    assert owner(net, count, netuid=netuid, mechanism_count=1) is None
    assert net.get("MechanismEmissionSplit", netuid) is None
    net.sudo("AdminUtils", "sudo_set_max_mechanism_count", max_mechanism_count=1)
    assert owner(net, count, netuid=netuid, mechanism_count=2) == "InvalidValue"


def test_each_mechanism_has_weights_bonds_incentive_and_a_rate_limit_of_its_own(net: Net) -> None:
    netuid = ready(net)
    other = netuid + STRIDE
    assert weigh(net, netuid, 0, 2) is None and weigh(net, netuid, 1, 3) is None
    assert weigh(net, netuid, 1, 3) == "SettingWeightsTooFast"
    assert weigh(net, netuid, 2, 3) == "MechanismDoesNotExist" == weigh(net, 99, 0, 3)
    assert [tuple(pair) for pair in net.get("Weights", netuid, 1)] == [(2, U16_MAX)]
    assert [tuple(pair) for pair in net.get("Weights", other, 1)] == [(3, U16_MAX)]
    assert net.get("LastUpdate", other)[1] == net.get("LastUpdate", netuid)[1] + 1
    net.next_epoch(netuid)
    assert net.get("Incentive", netuid) == [0, 0, U16_MAX, 0] and net.get("Incentive", other) == [0, 0, 0, U16_MAX]
    assert [target for target, _ in net.get("Bonds", netuid, 1)] == [2]
    assert [target for target, _ in net.get("Bonds", other, 1)] == [3]


@pytest.mark.parametrize(("shares", "ratio"), [(None, 1.0), ([49151, 16384], 3.0)])
def test_miners_are_paid_by_the_split(net: Net, shares: list[int] | None, ratio: float) -> None:
    netuid = ready(net)
    assert owner(net, "sudo_set_mechanism_emission_split", netuid=netuid, maybe_split=shares) is None
    assert weigh(net, netuid, 0, 2) is None and weigh(net, netuid, 1, 3) is None
    net.next_epoch(netuid)
    paid = {record["attributes"]["netuid"]: record["attributes"]["emissions"]
            for record in net.get("Events", pallet="System")
            if record["event_id"] == "IncentiveAlphaEmittedToMiners"}  # fmt: skip
    first, second = paid[netuid][2], paid[netuid + STRIDE][3]
    assert first / second == pytest.approx(ratio, rel=1e-3)
    held = [net.chain.ledger.pallet("SubtensorModule").get("TotalHotkeyAlpha", net.address(who), netuid)
            for who in ("b_hot", "c_hot")]  # fmt: skip
    assert held == [first, second]
    assert net.get("Dividends", netuid)[1] >= U16_MAX - 1


def test_a_newcomer_in_anothers_place_starts_afresh_in_every_mechanism(net: Net) -> None:
    netuid = ready(net)
    other = netuid + STRIDE
    assert weigh(net, netuid, 0, 2) is None and weigh(net, netuid, 1, 2) is None
    net.next_epoch(netuid)
    net.register(netuid, "d")
    assert len(net.get("LastUpdate", other)) == len(net.get("Incentive", other)) == 5
    net.sudo("AdminUtils", "sudo_set_min_non_immune_uids", netuid=netuid, min=0)
    net.sudo("AdminUtils", "sudo_set_immunity_period", netuid=netuid, immunity_period=0)
    net.chain.ledger.put("SubtensorModule", "MaxAllowedUids", (netuid,), 5)
    net.chain.ledger.put("SubtensorModule", "Emission", (netuid,), [9, 9, 0, 9, 9])
    net.register(netuid, "e")
    assert net.get("Keys", netuid, 2) == net.address("e_hot")
    for index in (netuid, other):
        assert net.get("Incentive", index)[2] == 0
        assert [tuple(pair) for pair in net.get("Weights", index, 1)] == [(2, 0)]
        assert net.get("LastUpdate", index)[2] == net.get("BlockAtRegistration", netuid, 2)


def test_closing_a_mechanism_forgets_all_it_had(net: Net) -> None:
    netuid = ready(net)
    assert weigh(net, netuid, 1, 3) is None
    net.next_epoch(netuid)
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=True)
    assert net.do("a_hot", "SubtensorModule", "commit_mechanism_weights",
                  netuid=netuid, mecid=1, commit_hash="0x" + "11" * 32).error is None  # fmt: skip
    assert owner(net, "sudo_set_mechanism_count", netuid=netuid, mechanism_count=1) is None
    sub = net.chain.ledger.pallet("SubtensorModule")
    for item in ("Weights", "Bonds", "WeightCommits", "TimelockedWeightCommits"):
        assert list(sub.items(item, netuid + STRIDE)) == []
    assert net.get("Incentive", netuid + STRIDE) == [] == net.get("LastUpdate", netuid + STRIDE)
    net.next_epoch(netuid)


def test_commits_of_a_mechanism_are_revealed_into_it(net: Net) -> None:
    netuid = ready(net)
    other = netuid + STRIDE
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=True)
    net.next_epoch(netuid)
    secret = {"uids": [3], "values": [7], "salt": [1], "version_key": 0}
    commit = {"netuid": netuid, "mecid": 1, "commit_hash": hash_weights(net.address("a_hot"), other, *secret.values())}
    assert (
        net.do("a_hot", "SubtensorModule", "commit_mechanism_weights", **commit).event("WeightsCommitted")[1] == other
    )
    reveal = {"netuid": netuid, **secret}
    net.next_epoch(netuid)
    assert net.do("a_hot", "SubtensorModule", "reveal_weights", **reveal).error == "NoWeightsCommitFound"
    assert net.do("a_hot", "SubtensorModule", "reveal_mechanism_weights", mecid=1, **reveal).error is None
    assert net.get("Weights", netuid, 1) == [] != net.get("Weights", other, 1)


def test_a_timelocked_commit_of_a_mechanism_is_opened_into_it(net: Net) -> None:
    netuid = ready(net)
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=True)
    net.next_epoch(netuid)
    sealed = {"commit": seal(net.address("a_hot"), {3: 7}), "reveal_round": 1000, "commit_reveal_version": 4}
    done = net.do("a_hot", "SubtensorModule", "commit_timelocked_mechanism_weights", netuid=netuid, mecid=1, **sealed)
    assert done.error is None
    net.chain.hear(1000, PULSES[1000])
    net.next_epoch(netuid)
    assert net.get("Weights", netuid, 1) == []
    assert [tuple(pair) for pair in net.get("Weights", netuid + STRIDE, 1)] == [(3, U16_MAX)]
