"""Timelocked weights: sealed by the client's own library, opened by real drand pulses."""

from __future__ import annotations

import bittensor_core
from bittensor_core import ss58_decode

from subnet.localnet.metadata import scale
from subnet.localnet.pallets.timelock import opens
from subnet.localnet.pallets.weights import U16_MAX
from tests.localnet.conftest import Net

PULSES = {
    1000: "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39",
    657413: "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b",
}
"""Rounds of quicknet that the beacon published in 2023, with its signatures."""


def ready(net: Net) -> int:
    """A commit-reveal subnet whose uid 1 ("a_hot") may set weights, at the beginning of an epoch."""
    netuid = net.subnet()
    net.register(netuid, "a", "b")
    net.stake("a", netuid, 20)
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=True)
    net.next_epoch(netuid)
    return netuid


def seal(hotkey: str, weights: dict[int, int], round_: int = 1000) -> bytes:
    """Weights by uid, packed and sealed as the client does."""
    lists = (list(weights), list(weights.values()))
    numbers = b"".join(scale.vec(items, lambda item: scale.integer(item, 16)) for items in lists)
    payload = scale.blob(ss58_decode(hotkey)) + numbers + scale.integer(0, 64)
    return bytes(bittensor_core.inner_ciphertext(bittensor_core.encrypt_at_round(payload, round_)[0]))


def sealed(net: Net, round_: int = 1000, who: str = "a_hot") -> bytes:
    return seal(net.address(who), {2: 7}, round_)


def commit(net: Net, netuid: int, ciphertext: bytes, round_: int = 1000, version: int = 4) -> str | None:
    call = {"netuid": netuid, "mecid": 0, "commit": ciphertext, "reveal_round": round_}
    name = "commit_timelocked_mechanism_weights"
    return net.do("a_hot", "SubtensorModule", name, **call, commit_reveal_version=version).error


def stored(net: Net, netuid: int) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in net.get("Weights", netuid, 1)]


def pending(net: Net, netuid: int) -> int:
    commits = net.chain.ledger.pallet("SubtensorModule").items("TimelockedWeightCommits", netuid)
    return sum(len(listed) for _, listed in commits)


def test_only_the_beacons_own_signature_opens_a_round() -> None:
    assert all(opens(signature, round_) for round_, signature in PULSES.items())
    assert not opens(PULSES[1000], 1001) and not opens("00" * 48, 1000) and not opens("zz", 1000)


def test_weights_appear_in_the_reveal_epoch_once_the_round_is_heard(net: Net) -> None:
    netuid = ready(net)
    assert not net.chain.hear(1001, PULSES[1000])
    assert commit(net, netuid, sealed(net)) is None
    assert net.chain.hear(1000, PULSES[1000])
    net.produce()
    assert net.get("LastStoredRound", pallet="Drand") == 1000
    assert stored(net, netuid) == [] and pending(net, netuid) == 1
    net.next_epoch(netuid)
    assert stored(net, netuid) == [(2, U16_MAX)] and pending(net, netuid) == 0
    assert net.get("Incentive", netuid)[2] == U16_MAX


def test_a_late_pulse_still_counts_within_the_reveal_epoch_and_not_after(net: Net) -> None:
    netuid = ready(net)
    assert commit(net, netuid, sealed(net)) is None
    net.next_epoch(netuid)
    assert stored(net, netuid) == [] and pending(net, netuid) == 1
    net.chain.hear(1000, PULSES[1000])
    net.produce()
    assert stored(net, netuid) == [(2, U16_MAX)]
    assert commit(net, netuid, sealed(net, 657413), 657413) in (None, "CommittingWeightsTooFast")
    net.next_epoch(netuid)
    net.next_epoch(netuid)
    assert pending(net, netuid) == 0


def test_refusals(net: Net) -> None:
    netuid = ready(net)
    assert commit(net, 99, b"x") == "MechanismDoesNotExist"
    assert commit(net, netuid, b"x", version=3) == "IncorrectCommitRevealVersion"
    assert commit(net, netuid, b"x") is None
    assert commit(net, netuid, b"x") == "CommittingWeightsTooFast"
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=False)
    assert commit(net, netuid, b"x") == "CommitRevealDisabled"


def test_rubbish_and_another_hotkeys_ciphertext_are_dropped(net: Net) -> None:
    netuid = ready(net)
    net.sudo("AdminUtils", "sudo_set_weights_set_rate_limit", netuid=netuid, weights_set_rate_limit=0)
    net.chain.hear(1000, PULSES[1000])
    assert commit(net, netuid, b"rubbish") is None
    assert commit(net, netuid, sealed(net, who="b_hot")) is None
    net.next_epoch(netuid)
    assert stored(net, netuid) == [] and pending(net, netuid) == 0
