"""When a subnet's epoch runs: at its tempo, or when its owner asked for it.

Read by the epoch itself, by commit-reveal and by the runtime APIs. As the Subtensor's stateful scheduler.
"""

from __future__ import annotations

from subnet.localnet.ledger import Pallet

MAX_TEMPO = 50_400


def should_run(sub: Pallet, netuid: int, block: int) -> bool:
    """Whether the subnet's epoch is due in this block."""
    tempo = sub.get("Tempo", netuid)
    if not tempo:
        return False
    pending = sub.get("PendingEpochAt", netuid)
    overdue = sub.get("BlocksSinceLastStep", netuid) > MAX_TEMPO
    return overdue or 0 < pending <= block or block - sub.get("LastEpochBlock", netuid) >= tempo


def next_epoch(sub: Pallet, netuid: int) -> int | None:
    """The block the next epoch is expected in."""
    tempo, pending = sub.get("Tempo", netuid), sub.get("PendingEpochAt", netuid)
    if not tempo:
        return None
    following = sub.get("LastEpochBlock", netuid) + tempo
    return min(following, pending) if pending else following


def activity_cutoff(sub: Pallet, netuid: int) -> int:
    """Blocks after which a neuron that set no weights stops counting."""
    return max(sub.get("ActivityCutoffFactorMilli", netuid) * sub.get("Tempo", netuid) // 1000, 1)


def frozen(sub: Pallet, netuid: int, block: int) -> bool:
    """Whether an owner's changes must wait because an epoch is near."""
    left = sub.get("LastEpochBlock", netuid) + sub.get("Tempo", netuid) - block
    return sub.get("PendingEpochAt", netuid) > block or left < sub.get("AdminFreezeWindow")
