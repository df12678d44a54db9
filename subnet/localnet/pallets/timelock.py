"""Timelocked weights: ciphertexts for a round of the drand beacon, opened and set when the chain hears that round.

The client seals to the public key of drand's quicknet, which its library carries, so nothing but the beacon's own
signature opens a commit: a chain that hears no beacon keeps it until it expires. Epochs, limits and errors follow the
Subtensor's commit-reveal version 4; the pulses are its Drand pallet's.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b, sha256
from typing import Any

import bittensor_core
from bittensor_core import ss58_decode

from subnet.localnet.dispatch import Context, DispatchError, call
from subnet.localnet.ledger import Ledger
from subnet.localnet.metadata import scale
from subnet.localnet.pallets import mechanisms, neurons, weights

MAX_COMMITS = 10
"""Of one hotkey in one epoch."""
MAX_COMMIT_BYTES = 5_000
MAX_PULSES = 1_000
"""Pulses kept."""

Commit = tuple[str, int, Any, int]
"""hotkey, block of the commit, ciphertext, drand round."""


def opens(signature: str, round_: int) -> bool:
    """Whether `signature` (hex) is quicknet's of this round: only that one opens what is sealed to it."""
    sealed, _ = bittensor_core.encrypt_at_round(b"pulse", round_)
    try:
        return bool(bittensor_core.decrypt_with_signature(sealed, signature) == b"pulse")
    except ValueError:
        return False


def hear(ctx: Context, pulses: Mapping[int, str]) -> None:
    """Keeps the pulses, round to signature in hex; they must have been checked by `opens`."""
    drand = ctx.ledger.pallet("Drand")
    for round_, signature in sorted(pulses.items()):
        data = bytes.fromhex(signature)
        drand.put("Pulses", round_, {"round": round_, "randomness": sha256(data).digest(), "signature": data})
    if not pulses:
        return
    kept = sorted(round_ for round_, _ in drand.items("Pulses"))
    for round_ in kept[:-MAX_PULSES]:
        drand.remove("Pulses", round_)
    drand.put("OldestStoredRound", kept[-MAX_PULSES:][0])
    drand.put("LastStoredRound", kept[-1])
    ctx.emit("Drand", "NewPulse", {"rounds": sorted(pulses)})


def awaited(ledger: Ledger) -> set[int]:
    """Rounds that commits wait for and whose pulses are not stored."""
    listed = ledger.pallet("SubtensorModule").items("TimelockedWeightCommits")
    rounds = {round_ for _, commits in listed for *_, round_ in commits}
    return {round_ for round_ in rounds if ledger.get("Drand", "Pulses", round_) is None}


@call("SubtensorModule", "commit_timelocked_weights", free=True)
def commit_timelocked_weights(
    ctx: Context, netuid: int, commit: Any, reveal_round: int, commit_reveal_version: int
) -> None:
    commit_timelocked_mechanism_weights(ctx, netuid, 0, commit, reveal_round, commit_reveal_version)


@call("SubtensorModule", "commit_timelocked_mechanism_weights", free=True)
def commit_timelocked_mechanism_weights(
    ctx: Context, netuid: int, mecid: int, commit: Any, reveal_round: int, commit_reveal_version: int
) -> None:
    index = mechanisms.ensure(ctx, netuid, mecid)
    hotkey = ctx.signed()
    ctx.ensure(ctx.sub.get("CommitRevealWeightsEnabled", netuid), "CommitRevealDisabled")
    version = ctx.sub.get("CommitRevealWeightsVersion")
    ctx.ensure(commit_reveal_version == version, "IncorrectCommitRevealVersion")
    uid = neurons.uid_of(ctx, netuid, hotkey)
    ctx.ensure(weights.passes_rate_limit(ctx, netuid, mecid, uid), "CommittingWeightsTooFast")
    ciphertext = _bytes(commit)
    if len(ciphertext) > MAX_COMMIT_BYTES:
        raise DispatchError("Corruption")
    epoch = weights.current_epoch(ctx, netuid)
    commits: list[Commit] = ctx.sub.get("TimelockedWeightCommits", index, epoch)
    ctx.ensure(sum(item[0] == hotkey for item in commits) < MAX_COMMITS, "TooManyUnrevealedCommits")
    mine = (hotkey, ctx.block, ciphertext, reveal_round)
    ctx.sub.put("TimelockedWeightCommits", index, epoch, [*commits, mine])
    neurons.set_last_update(ctx, index, uid)
    digest = "0x" + blake2b(ciphertext, digest_size=32).hexdigest()
    ctx.emit("SubtensorModule", "TimelockedWeightsCommitted", [hotkey, index, digest, reveal_round])


def reveal(ctx: Context, netuid: int) -> None:
    """Sets the weights committed a reveal period ago whose rounds were heard; drops what is older or cannot be set."""
    due = weights.current_epoch(ctx, netuid) - ctx.sub.get("RevealPeriodEpochs", netuid)
    for mecid, index in enumerate(mechanisms.indices(ctx.sub, netuid)):
        for epoch, commits in list(ctx.sub.items("TimelockedWeightCommits", index)):
            if epoch > due:
                continue
            waiting = [item for item in commits if not _settled(ctx, netuid, mecid, item)] if epoch == due else []
            if not waiting:
                ctx.sub.remove("TimelockedWeightCommits", index, epoch)
            elif len(waiting) < len(commits):
                ctx.sub.put("TimelockedWeightCommits", index, epoch, waiting)


def _settled(ctx: Context, netuid: int, mecid: int, commit: Commit) -> bool:
    hotkey, _, ciphertext, round_ = commit
    pulse = ctx.ledger.get("Drand", "Pulses", round_)
    if pulse is None:
        return False
    payload = _unsealed(_bytes(ciphertext), round_, _bytes(pulse["signature"]))
    opened = None if payload is None else _payload(payload)
    if opened is None or opened[0] != ss58_decode(hotkey):
        return True
    announced = len(ctx.events)
    try:
        with ctx.state.transaction():
            weights.store_weights(ctx.nested(hotkey), netuid, mecid, *opened[1:])
            revealed = [mechanisms.index(netuid, mecid), hotkey]
            ctx.emit("SubtensorModule", "TimelockedWeightsRevealed", revealed)
    except DispatchError:
        del ctx.events[announced:]
    return True


def _unsealed(ciphertext: bytes, round_: int, signature: bytes) -> bytes | None:
    envelope = scale.blob(ciphertext) + scale.integer(round_, 64)
    try:
        return bytes(bittensor_core.decrypt_with_signature(envelope, signature.hex()))
    except ValueError:
        return None


def _payload(data: bytes) -> tuple[bytes, list[int], list[int], int] | None:
    """hotkey, uids, values, version key, as the client packs them in SCALE; None when malformed."""
    at, fields = 0, []
    for size in (1, 2, 2):
        if at >= len(data):
            return None
        mode = data[at] & 3
        width = (1, 2, 4)[mode] if mode < 3 else 0
        length = int.from_bytes(data[at : at + width], "little") >> 2
        at += width
        fields.append(data[at : at + size * length])
        if not width or len(fields[-1]) < size * length:
            return None
        at += size * length
    if len(data) != at + 8:
        return None
    uids, values = (
        [int.from_bytes(field[i : i + 2], "little") for i in range(0, len(field), 2)] for field in fields[1:]
    )
    return fields[0], uids, values, int.from_bytes(data[at:], "little")


def _bytes(value: Any) -> bytes:
    """Bytes as the codec hands them out: hex behind 0x, or text where they happen to be UTF-8."""
    if isinstance(value, str):
        return bytes.fromhex(value[2:]) if value.startswith("0x") else value.encode()
    return bytes(value)
