"""Commitments: a few bytes a registered hotkey publishes under its name, within its space per epoch.

Timelocked fields are stored but never revealed: this chain hears no drand beacon.
"""

from __future__ import annotations

from typing import Any

from subnet.localnet.dispatch import Context, call
from subnet.localnet.pallets import mechanisms

MAX_FIELDS = 3
MIN_SPACE = 100
"""Bytes a commitment counts as at least."""
MAX_RAW, MAX_BIG_RAW, MAX_TIMELOCK = 128, 512, 1024
"""Bytes of one field by kind."""
HASHES = ("BlakeTwo256", "Sha256", "Keccak256", "ShaThree256")


def field_size(field: Any) -> int:
    """Bytes one field takes of the account's space."""
    if isinstance(field, str):
        return 0
    ((kind, payload),) = field.items()
    if kind in HASHES:
        return 32
    if kind == "TimelockEncrypted":
        return _length(payload["encrypted"])
    return _length(payload)


def _length(text: str) -> int:
    return (len(text) - 2) // 2 if text.startswith("0x") else len(text.encode())


def _fits(field: Any) -> bool:
    kind = field if isinstance(field, str) else next(iter(field))
    limit = {"BigRaw": MAX_BIG_RAW, "TimelockEncrypted": MAX_TIMELOCK}.get(kind, MAX_RAW)
    return field_size(field) <= limit


@call("Commitments", "set_commitment", free=True)
def set_commitment(ctx: Context, netuid: int, info: dict[str, Any]) -> None:
    who = ctx.signed()
    store = ctx.ledger.pallet("Commitments")
    ctx.ensure(ctx.sub.has("Uids", netuid, who), "AccountNotAllowedCommit", "Commitments")
    fields = info["fields"]
    ctx.ensure(len(fields) <= MAX_FIELDS, "TooManyFieldsInCommitmentInfo", "Commitments")
    ctx.ensure(all(map(_fits, fields)), "SpaceLimitExceeded", "Commitments")
    epoch = ctx.sub.get("SubnetEpochIndex", netuid)
    usage = store.get("UsedSpaceOf", netuid, who)
    used = usage["used_space"] if usage and usage["last_epoch"] == epoch else 0
    used += max(sum(map(field_size, fields)), MIN_SPACE)
    ctx.ensure(used <= store.get("MaxSpace"), "SpaceLimitExceeded", "Commitments")
    store.put("UsedSpaceOf", netuid, who, {"last_epoch": epoch, "used_space": used})
    store.put("CommitmentOf", netuid, who, {"deposit": 0, "block": ctx.block, "info": info})
    store.put("LastCommitment", netuid, who, ctx.block)
    if "ResetBondsFlag" in fields:
        store.put("LastBondsReset", netuid, who, ctx.block)
        _reset_bonds(ctx, netuid, who)
    locked = next((field["TimelockEncrypted"] for field in fields if "TimelockEncrypted" in field), None)
    if locked is None:
        ctx.emit("Commitments", "Commitment", {"netuid": netuid, "who": who})
    else:
        fired = {"netuid": netuid, "who": who, "reveal_round": locked["reveal_round"]}
        ctx.emit("Commitments", "TimelockCommitment", fired)


def _reset_bonds(ctx: Context, netuid: int, who: str) -> None:
    """Forgets every validator's bond to the hotkey, where the subnet lets its miners ask for it."""
    if not ctx.sub.get("BondsResetOn", netuid):
        return
    uid = ctx.sub.get("Uids", netuid, who)
    for index in mechanisms.indices(ctx.sub, netuid):
        for validator, row in list(ctx.sub.items("Bonds", index)):
            ctx.sub.put("Bonds", index, validator, [(target, 0 if target == uid else bond) for target, bond in row])


@call("Commitments", "set_max_space")
def set_max_space(ctx: Context, new_limit: int) -> None:
    ctx.ensure_root()
    ctx.ledger.pallet("Commitments").put("MaxSpace", new_limit)
