"""The books of a chain: what must add up after every block, whatever was submitted."""

from __future__ import annotations

from collections import Counter

from subnet.localnet.ledger import Ledger
from subnet.localnet.pallets.stake import ROOT_NETUID, subnet_account


def audit(ledger: Ledger) -> None:
    """Asserts, to the last rao: TAO issued is TAO held; alpha issued is pooled, staked, pending, burned or protocol's.

    No balance may be negative, and what is kept as a sum must be the sum. Nobody may have paid TAO to a pool's account
    but by staking.
    """
    sub = ledger.pallet("SubtensorModule")
    free = {who: record["data"]["free"] for who, record in ledger.pallet("System").items("Account")}
    assert min(free.values()) >= 0
    assert sum(free.values()) == ledger.get("Balances", "TotalIssuance") == sub.get("TotalIssuance")

    staked: Counter[int] = Counter()
    by_hotkey: Counter[tuple[str, int]] = Counter()
    for (hotkey, _, netuid), share in sub.items("AlphaV2"):
        assert share["mantissa"] > 0 and share["exponent"] == 0
        staked[netuid] += share["mantissa"]
        by_hotkey[hotkey, netuid] += share["mantissa"]
    assert by_hotkey == {pair: total for pair, total in sub.items("TotalHotkeyAlpha") if total}

    netuids = [netuid for netuid, added in sub.items("NetworksAdded") if added]
    assert sub.get("TotalStake") == sum(sub.get("SubnetTAO", netuid) for netuid in netuids)
    for netuid in netuids:
        assert sub.get("TotalAlphaStaked", netuid) == staked[netuid]
        assert sub.get("SubnetTAO", netuid) == free.get(subnet_account(netuid), 0)
        if netuid == ROOT_NETUID:
            assert sub.get("SubnetAlphaOut", netuid) == staked[netuid] == sub.get("SubnetTAO", netuid)
            continue
        pending = sum(sub.get(f"Pending{part}", netuid) for part in ("OwnerCut", "ServerEmission", "ValidatorEmission"))
        burned = ledger.get("AlphaAssets", "AlphaBurned", netuid)
        out = staked[netuid] + pending + burned + sub.get("SubnetProtocolAlpha", netuid)
        assert sub.get("SubnetAlphaOut", netuid) == out
        issued = ledger.get("AlphaAssets", "TotalAlphaIssuance", netuid)
        assert issued == out + sub.get("SubnetAlphaIn", netuid)
