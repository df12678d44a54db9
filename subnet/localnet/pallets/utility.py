"""Calls that carry calls: Utility's batches, Sudo, the MEV shield's carrier (opened in chain.py), and remarks."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from bittensor_core import ss58_decode

from subnet.localnet.dispatch import ROOT, Context, DispatchError, call, dispatch, refusal

BATCH_LIMIT = 10_922

Call = dict[str, Any]


def _limited(calls: list[Call]) -> None:
    if len(calls) > BATCH_LIMIT:
        raise refusal("Utility", "TooManyCalls")


@call("Utility", "batch")
def batch(ctx: Context, calls: list[Call]) -> None:
    """Stops at the first refused call; what was done before it stays."""
    _limited(calls)
    for index, item in enumerate(calls):
        try:
            dispatch(ctx.nested(ctx.origin), item)
        except DispatchError as error:
            ctx.emit("Utility", "BatchInterrupted", {"index": index, "error": error.value})
            return
        ctx.emit("Utility", "ItemCompleted")
    ctx.emit("Utility", "BatchCompleted")


@call("Utility", "batch_all")
def batch_all(ctx: Context, calls: list[Call]) -> None:
    """All or nothing."""
    _limited(calls)
    for item in calls:
        dispatch(ctx.nested(ctx.origin), item)
        ctx.emit("Utility", "ItemCompleted")
    ctx.emit("Utility", "BatchCompleted")


@call("Utility", "force_batch")
def force_batch(ctx: Context, calls: list[Call]) -> None:
    """Goes on behind refused calls."""
    _limited(calls)
    failed = False
    for item in calls:
        try:
            dispatch(ctx.nested(ctx.origin), item)
            ctx.emit("Utility", "ItemCompleted")
        except DispatchError as error:
            failed = True
            ctx.emit("Utility", "ItemFailed", {"error": error.value})
    ctx.emit("Utility", "BatchCompletedWithErrors" if failed else "BatchCompleted")


@call("Sudo", "sudo", free=True)
def sudo(ctx: Context, call: Call) -> None:
    """Runs a call as root; its refusal is told in the event, the sudo itself succeeds."""
    _ensure_sudo(ctx)
    ctx.emit("Sudo", "Sudid", {"sudo_result": _outcome(ctx, ROOT, call)})


@call("Sudo", "sudo_unchecked_weight", free=True)
def sudo_unchecked_weight(ctx: Context, call: Call, weight: Any) -> None:
    sudo(ctx, call)


@call("Sudo", "sudo_as", free=True)
def sudo_as(ctx: Context, who: str, call: Call) -> None:
    _ensure_sudo(ctx)
    ctx.emit("Sudo", "SudoAsDone", {"sudo_result": _outcome(ctx, who, call)})


@call("Sudo", "set_key", free=True)
def set_key(ctx: Context, new: str) -> None:
    _ensure_sudo(ctx)
    key = ctx.ledger.pallet("Sudo")
    ctx.emit("Sudo", "KeyChanged", {"old": key.get("Key"), "new": new})
    key.put("Key", new)


@call("MevShield", "submit_encrypted")
def submit_encrypted(ctx: Context, ciphertext: str) -> None:
    who = ctx.signed()
    identity = blake2b(ss58_decode(who) + _plain(ciphertext), digest_size=32).digest()
    ctx.emit("MevShield", "EncryptedSubmitted", {"id": identity, "who": who})


@call("System", "remark")
def remark(ctx: Context, remark: str) -> None:
    ctx.signed()


@call("System", "remark_with_event")
def remark_with_event(ctx: Context, remark: str) -> None:
    digest = blake2b(_plain(remark), digest_size=32).digest()
    ctx.emit("System", "Remarked", {"sender": ctx.signed(), "hash": digest})


def _plain(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def _ensure_sudo(ctx: Context) -> None:
    ctx.ensure(ctx.origin == ctx.ledger.get("Sudo", "Key"), "RequireSudo", "Sudo")


def _outcome(ctx: Context, origin: str, call: Call) -> Any:
    try:
        dispatch(ctx.nested(origin), call)
    except DispatchError as error:
        return {"Err": error.value}
    return {"Ok": ()}
