"""Mechanisms: the separate competitions of one subnet, each with weights, bonds and incentive of its own.

What they have apart is stored under an index of its own; that of mechanism 0 is the netuid. A subnet with more than
one must hold fewer neurons. Numbers and checks are the Subtensor's.
"""

from __future__ import annotations

from subnet.localnet.dispatch import Context
from subnet.localnet.ledger import Pallet

STRIDE = 4096
MAX_COUNT = 16
MAX_UIDS = 256
"""Neurons times mechanisms of a subnet."""
OWN_ITEMS = ("Weights", "Bonds", "WeightCommits", "TimelockedWeightCommits")
"""Stored under a mechanism's index and one more key; Incentive and LastUpdate under the index alone."""


def index(netuid: int, mecid: int) -> int:
    return mecid * STRIDE + netuid


def indices(sub: Pallet, netuid: int) -> list[int]:
    """Of all the subnet's mechanisms."""
    return [index(netuid, mecid) for mecid in range(sub.get("MechanismCountCurrent", netuid))]


def exists(sub: Pallet, netuid: int, mecid: int) -> bool:
    return bool(sub.get("NetworksAdded", netuid) and mecid < sub.get("MechanismCountCurrent", netuid))


def ensure(ctx: Context, netuid: int, mecid: int) -> int:
    """The mechanism's index; MechanismDoesNotExist where there is no such mechanism, or subnet."""
    ctx.ensure(exists(ctx.sub, netuid, mecid), "MechanismDoesNotExist")
    return index(netuid, mecid)


def last_update(sub: Pallet, netuid: int, mecid: int = 0) -> list[int]:
    """By uid; 0 for those that have not set weights since the mechanism was opened."""
    known = list(sub.get("LastUpdate", index(netuid, mecid)))
    return known + [0] * (sub.get("SubnetworkN", netuid) - len(known))


def ensure_room(ctx: Context, max_uids: int, count: int) -> None:
    ctx.ensure(max_uids * count <= MAX_UIDS, "TooManyUIDsPerMechanism")


def set_count(ctx: Context, netuid: int, count: int) -> None:
    """Opens mechanisms, or removes the last ones with all they have; the emission is then split evenly."""
    ctx.ensure(0 < count <= min(ctx.sub.get("MaxMechanismCount"), MAX_COUNT), "InvalidValue")
    ensure_room(ctx, ctx.sub.get("MaxAllowedUids", netuid), count)
    before = ctx.sub.get("MechanismCountCurrent", netuid)
    if count == before:
        return
    for mecid in range(count, before):
        gone = index(netuid, mecid)
        for item in OWN_ITEMS:
            ctx.sub.clear(item, gone)
        ctx.sub.remove("Incentive", gone)
        ctx.sub.remove("LastUpdate", gone)
    ctx.sub.put("MechanismCountCurrent", netuid, count)
    ctx.sub.remove("MechanismEmissionSplit", netuid)


def set_split(ctx: Context, netuid: int, shares: list[int] | None) -> None:
    """Shares of 65535 by mechanism; None splits evenly."""
    if shares is None:
        ctx.sub.remove("MechanismEmissionSplit", netuid)
        return
    ctx.ensure(len(shares) == ctx.sub.get("MechanismCountCurrent", netuid) and sum(shares) == 0xFFFF, "InvalidValue")
    ctx.sub.put("MechanismEmissionSplit", netuid, shares)
