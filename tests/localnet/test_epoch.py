"""What a block does by itself: accrual, epochs at their tempo, and who is paid."""

from __future__ import annotations

import pytest

from subnet.localnet.pallets import stake
from tests.localnet.conftest import Net

ALPHA = 10**9
"""rao a subnet emits per block."""


def total(net: Net, hotkey: str, netuid: int) -> int:
    return net.get("TotalHotkeyAlpha", net.address(hotkey), netuid)


def with_validator(net: Net, weights: dict[int, int] | None = None) -> int:
    """A subnet of tempo 20 with a staked validator (uid 1, "v_hot") and two miners (2 and 3); epochs have begun."""
    netuid = net.subnet()
    net.do("owner", "SubtensorModule", "set_tempo", netuid=netuid, tempo=20)
    net.register(netuid, "v", "m", "n")
    net.stake("v", netuid, 40)
    net.next_epoch(netuid)
    if weights is not None:
        call = {"netuid": netuid, "dests": list(weights), "weights": list(weights.values()), "version_key": 0}
        assert net.do("v_hot", "SubtensorModule", "set_weights", **call).error is None
        net.next_epoch(netuid)
    return netuid


def test_nothing_is_emitted_before_the_start(net: Net) -> None:
    net.fund("owner")
    net.do("owner", "SubtensorModule", "register_network", hotkey=net.address("owner_hot"))
    net.produce(30)
    assert net.get("SubnetAlphaOut", 2) == 0 and total(net, "owner_hot", 2) == 0


def test_a_block_emits_one_alpha_and_splits_it(net: Net) -> None:
    netuid = net.subnet()
    net.do("owner", "SubtensorModule", "set_tempo", netuid=netuid, tempo=360)
    before = net.get("SubnetAlphaOut", netuid)
    owner, miners, validators = (
        net.get(f"Pending{kind}", netuid) for kind in ("OwnerCut", "ServerEmission", "ValidatorEmission")
    )
    net.produce(10)
    assert net.get("SubnetAlphaOut", netuid) - before == 10 * ALPHA
    assert net.get("PendingOwnerCut", netuid) - owner == pytest.approx(0.18 * 10 * ALPHA, rel=1e-3)
    assert net.get("PendingServerEmission", netuid) - miners == pytest.approx(0.41 * 10 * ALPHA, rel=1e-3)
    assert net.get("PendingValidatorEmission", netuid) - validators == pytest.approx(0.41 * 10 * ALPHA, rel=1e-3)


def test_an_epoch_pays_miners_by_weight_and_the_validator(net: Net) -> None:
    netuid = with_validator(net, {2: 3, 3: 1})
    before = {name: total(net, name, netuid) for name in ("owner_hot", "v_hot", "m_hot", "n_hot")}
    net.next_epoch(netuid)
    gained = {name: total(net, name, netuid) - amount for name, amount in before.items()}
    assert sum(gained.values()) == 20 * ALPHA
    assert gained["owner_hot"] == pytest.approx(0.18 * 20 * ALPHA, rel=1e-3)
    assert gained["v_hot"] == pytest.approx(0.41 * 20 * ALPHA, rel=1e-3)
    assert gained["m_hot"] == pytest.approx(3 * gained["n_hot"], rel=1e-3)
    assert net.get("Incentive", netuid)[2] == pytest.approx(65535 * 0.75, rel=1e-3)
    assert net.get("Dividends", netuid)[1] == 65535 and net.get("ValidatorPermit", netuid)[1]
    emission = net.get("Emission", netuid)
    assert emission[1] == pytest.approx(gained["v_hot"], rel=1e-3) and emission[0] == 0
    assert net.get("LastEpochBlock", netuid) == net.chain.head.number
    assert net.get("PendingServerEmission", netuid) == 0


def test_without_weights_the_validators_get_the_miners_half(net: Net) -> None:
    netuid = with_validator(net)
    before = total(net, "v_hot", netuid), total(net, "owner_hot", netuid)
    net.next_epoch(netuid)
    dividends = total(net, "v_hot", netuid) - before[0] + total(net, "owner_hot", netuid) - before[1]
    assert dividends == 20 * ALPHA and total(net, "m_hot", netuid) == 0


def test_what_miners_would_give_to_the_owner_is_withheld(net: Net) -> None:
    netuid = with_validator(net, {0: 1, 2: 1})
    burned = net.get("AlphaBurned", netuid, pallet="AlphaAssets")
    owner = total(net, "owner_hot", netuid)
    net.next_epoch(netuid)
    assert net.get("AlphaBurned", netuid, pallet="AlphaAssets") - burned == pytest.approx(0.205 * 20 * ALPHA, rel=1e-2)
    assert total(net, "owner_hot", netuid) - owner == pytest.approx(0.18 * 20 * ALPHA, rel=1e-3)
    net.do("owner", "AdminUtils", "sudo_set_recycle_or_burn", netuid=netuid, recycle_or_burn="Recycle")
    net.next_epoch(netuid)
    assert net.get("AlphaRecycled", netuid, pallet="AlphaAssets") == pytest.approx(0.205 * 20 * ALPHA, rel=1e-2)


def test_stakers_share_dividends_after_the_take(net: Net) -> None:
    netuid = with_validator(net, {2: 1})
    net.fund("fan")
    net.stake("fan", netuid, 40, hotkey="v_hot")
    sub = net.chain.ledger.pallet("SubtensorModule")
    hotkey = net.address("v_hot")
    net.next_epoch(netuid)
    before = dict(stake.holders(sub, hotkey, netuid))
    net.next_epoch(netuid)
    gains = {coldkey: amount - before[coldkey] for coldkey, amount in stake.holders(sub, hotkey, netuid)}
    share = before[net.address("fan")] / sum(before.values())
    assert gains[net.address("fan")] == pytest.approx(0.82 * share * sum(gains.values()), rel=1e-3)


def test_a_stopped_validator_loses_its_weight_after_the_cutoff(net: Net) -> None:
    netuid = with_validator(net, {2: 1})
    net.do("owner", "SubtensorModule", "set_activity_cutoff_factor", netuid=netuid, factor_milli=1000)
    net.next_epoch(netuid)
    net.next_epoch(netuid)
    assert net.get("Active", netuid)[1] is False and net.get("Incentive", netuid)[2] == 0


def test_epochs_beyond_the_cap_wait_a_block(net: Net) -> None:
    netuids = [net.subnet(owner) for owner in ("owner", "second")]
    net.sudo("AdminUtils", "sudo_set_max_epochs_per_block", max_epochs_per_block=1)
    for netuid in (1, *netuids):
        assert net.sudo("AdminUtils", "sudo_set_tempo", netuid=netuid, tempo=30) == {"Ok": ()}
    due = net.get("LastEpochBlock", 1) + 30
    for netuid in netuids:
        net.chain.ledger.put("SubtensorModule", "LastEpochBlock", (netuid,), due - 30)
    net.produce(due - net.chain.head.number)
    deferred = [r["attributes"] for r in net.get("Events", pallet="System") if r["event_id"] == "EpochDeferred"]
    assert [event["netuid"] for event in deferred] == netuids
    net.produce(2)
    assert [net.get("LastEpochBlock", netuid) for netuid in (1, *netuids)] == [due, due + 1, due + 2]


def test_tao_goes_only_to_subnets_root_enabled(net: Net) -> None:
    netuid = net.subnet()
    net.produce(5)
    issued = net.get("TotalIssuance")
    net.produce(5)
    assert net.get("TotalIssuance") == issued
    net.sudo("AdminUtils", "sudo_set_subnet_emission_enabled", netuid=netuid, enabled=True)
    issued, pool = net.get("TotalIssuance"), net.get("SubnetTAO", netuid)
    net.produce(5)
    assert net.get("TotalIssuance") - issued == pytest.approx(5 * 10**9, rel=1e-3)
    assert net.get("SubnetTAO", netuid) - pool == pytest.approx(5 * 10**9, rel=1e-2)


def test_the_moving_price_follows_the_price_slowly(net: Net) -> None:
    netuid = net.subnet()
    net.do("owner", "SubtensorModule", "set_tempo", netuid=netuid, tempo=1000)
    seen = []
    for _ in range(5):
        net.produce(20)
        seen.append(net.get("SubnetMovingPrice", netuid)["bits"])
    assert seen == sorted(seen) and 0 < seen[0] < seen[-1] < 2**32


def test_parameters_consensus_cannot_use_skip_the_epoch_and_keep_its_alpha(net: Net) -> None:
    netuid = with_validator(net, {2: 1})
    net.sudo("AdminUtils", "sudo_set_bonds_moving_average", netuid=netuid, bonds_moving_average=2_000_000)
    before = total(net, "v_hot", netuid)
    net.next_epoch(netuid)
    assert any(record["event_id"] == "EpochSkipped" for record in net.get("Events", pallet="System"))
    assert total(net, "v_hot", netuid) == before and net.get("PendingServerEmission", netuid) > 8 * ALPHA
    net.sudo("AdminUtils", "sudo_set_bonds_moving_average", netuid=netuid, bonds_moving_average=900_000)
    net.next_epoch(netuid)
    assert total(net, "v_hot", netuid) - before == pytest.approx(0.41 * 40 * ALPHA, rel=1e-2)
