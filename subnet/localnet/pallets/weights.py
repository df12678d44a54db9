"""Weights: what validators say of miners, and the checks before it is believed.

Of each of a subnet's mechanisms (mechanisms.py). Commit-reveal by hash is here, by timelock in timelock.py. Checks and
their order are the Subtensor's `set_weights`.
"""

from __future__ import annotations

from hashlib import blake2b

from bittensor_core import ss58_decode

from subnet.localnet.consensus.fixed import FRACTION_BITS
from subnet.localnet.dispatch import Context, DispatchError, call
from subnet.localnet.metadata import scale
from subnet.localnet.pallets import mechanisms, neurons, stake
from subnet.localnet.schedule import should_run

U16_MAX = 0xFFFF
UPSCALE_BY_RATIO = 32_768
"""Above this the runtime divides once and then multiplies, which rounds differently."""
MAX_COMMITS = 10


def passes_rate_limit(ctx: Context, netuid: int, mecid: int, uid: int) -> bool:
    """Registration counts as setting weights: its block is the first LastUpdate."""
    last = mechanisms.last_update(ctx.sub, netuid, mecid)[uid]
    return not last or ctx.block - last >= ctx.sub.get("WeightsSetRateLimit", netuid)


def stake_weight(ctx: Context, netuid: int, hotkey: str) -> int:
    """rao: alpha on the subnet and weighted TAO on root."""
    root = stake.on_hotkey(ctx.sub, hotkey, stake.ROOT_NETUID) * ctx.sub.get("TaoWeight") // (2**64 - 1)
    return stake.on_hotkey(ctx.sub, hotkey, netuid) + root


def store_weights(ctx: Context, netuid: int, mecid: int, uids: list[int], values: list[int], version_key: int) -> None:
    hotkey = ctx.signed()
    sub = ctx.sub
    ctx.ensure(stake_weight(ctx, netuid, hotkey) >= sub.get("StakeThreshold"), "NotEnoughStakeToSetWeights")
    ctx.ensure(netuid != stake.ROOT_NETUID, "CanNotSetRootNetworkWeights")
    ctx.ensure(len(uids) == len(values), "WeightVecNotEqualSize")
    index = mechanisms.ensure(ctx, netuid, mecid)
    count = sub.get("SubnetworkN", netuid)
    ctx.ensure(len(uids) <= count, "UidsLengthExceedUidsInSubNet")
    uid = neurons.uid_of(ctx, netuid, hotkey)
    wanted = sub.get("WeightsVersionKey", netuid)
    ctx.ensure(not wanted or version_key >= wanted, "IncorrectWeightVersionKey")
    revealing = sub.get("CommitRevealWeightsEnabled", netuid)
    ctx.ensure(revealing or passes_rate_limit(ctx, netuid, mecid, uid), "SettingWeightsTooFast")
    own = uids == [uid]
    permitted = own or uid == neurons.owner_uid(sub, netuid) or sub.get("ValidatorPermit", netuid)[uid]
    ctx.ensure(permitted, "NeuronNoValidatorPermit")
    ctx.ensure(len(set(uids)) == len(uids), "DuplicateUids")
    ctx.ensure(all(target < count for target in uids), "UidVecContainInvalidOne")
    ctx.ensure(own or len(uids) >= min(sub.get("MinAllowedWeights", netuid), count), "WeightVecLengthIsLow")
    scaled = upscale(values)
    limit = sub.get("MaxWeightsLimit", netuid)
    ctx.ensure(own or limit == U16_MAX or within_limit(scaled, limit), "MaxWeightExceeded")
    sub.put("Weights", index, uid, list(zip(uids, scaled, strict=True)))
    if not revealing:
        neurons.set_last_update(ctx, index, uid)
    ctx.emit("SubtensorModule", "WeightsSet", [index, uid])


def upscale(values: list[int]) -> list[int]:
    """u16 values scaled so that the largest is 65535, rounded half up, in the runtime's 32 fractional bits."""
    largest = max(values, default=0)
    if not largest:
        return values
    half = 1 << (FRACTION_BITS - 1)
    if largest > UPSCALE_BY_RATIO:
        ratio = (U16_MAX << FRACTION_BITS) // largest
        return [(value * ratio + half) >> FRACTION_BITS for value in values]
    return [(((value * U16_MAX << FRACTION_BITS) // largest) + half) >> FRACTION_BITS for value in values]


def within_limit(values: list[int], limit: int) -> bool:
    """Whether no value's share of the sum exceeds `limit` of 65535."""
    total = sum(values)
    return not total or (max(values) << FRACTION_BITS) // total <= (limit << FRACTION_BITS) // U16_MAX


@call("SubtensorModule", "set_weights", free=True)
def set_weights(ctx: Context, netuid: int, dests: list[int], weights: list[int], version_key: int) -> None:
    set_mechanism_weights(ctx, netuid, 0, dests, weights, version_key)


@call("SubtensorModule", "set_mechanism_weights", free=True)
def set_mechanism_weights(
    ctx: Context, netuid: int, mecid: int, dests: list[int], weights: list[int], version_key: int
) -> None:
    mechanisms.ensure(ctx, netuid, mecid)
    ctx.ensure(not ctx.sub.get("CommitRevealWeightsEnabled", netuid), "CommitRevealEnabled")
    store_weights(ctx, netuid, mecid, dests, weights, version_key)


@call("SubtensorModule", "batch_set_weights", free=True)
def batch_set_weights(
    ctx: Context, netuids: list[int], weights: list[list[tuple[int, int]]], version_keys: list[int]
) -> None:
    """Sets what it can, and reports the rest in events."""
    hotkey = ctx.signed()
    ctx.ensure(len(netuids) == len(weights) == len(version_keys), "InputLengthsUnequal")
    failures = []
    for netuid, row, key in zip(netuids, weights, version_keys, strict=True):
        try:
            with ctx.state.transaction():
                set_weights(ctx, netuid, [uid for uid, _ in row], [value for _, value in row], key)
        except DispatchError as error:
            failures.append((netuid, error.value))
    if failures:
        ctx.emit("SubtensorModule", "BatchCompletedWithErrors")
    for netuid, value in failures:
        ctx.emit("SubtensorModule", "BatchWeightItemFailed", [netuid, value])
    ctx.emit("SubtensorModule", "BatchWeightsCompleted", [netuids, hotkey])


def current_epoch(ctx: Context, netuid: int) -> int:
    return ctx.sub.get("SubnetEpochIndex", netuid) + should_run(ctx.sub, netuid, ctx.block)


def hash_weights(who: str, index: int, uids: list[int], values: list[int], salt: list[int], version_key: int) -> str:
    """blake2b-256 of the SCALE tuple (account, mechanism's index, uids, values, salt, version key), as 0x-hex."""
    lists = b"".join(scale.vec(items, lambda item: scale.integer(item, 16)) for items in (uids, values, salt))
    data = ss58_decode(who) + scale.integer(index, 16) + lists + scale.integer(version_key, 64)
    return "0x" + blake2b(data, digest_size=32).hexdigest()


@call("SubtensorModule", "commit_weights", free=True)
def commit_weights(ctx: Context, netuid: int, commit_hash: str) -> None:
    commit_mechanism_weights(ctx, netuid, 0, commit_hash)


@call("SubtensorModule", "commit_mechanism_weights", free=True)
def commit_mechanism_weights(ctx: Context, netuid: int, mecid: int, commit_hash: str) -> None:
    index = mechanisms.ensure(ctx, netuid, mecid)
    hotkey = ctx.signed()
    ctx.ensure(ctx.sub.get("CommitRevealWeightsEnabled", netuid), "CommitRevealDisabled")
    uid = neurons.uid_of(ctx, netuid, hotkey)
    ctx.ensure(passes_rate_limit(ctx, netuid, mecid, uid), "CommittingWeightsTooFast")
    epoch, period = current_epoch(ctx, netuid), ctx.sub.get("RevealPeriodEpochs", netuid)
    commits = [item for item in ctx.sub.get("WeightCommits", index, hotkey) or [] if epoch <= item[1] + period]
    ctx.ensure(len(commits) < MAX_COMMITS, "TooManyUnrevealedCommits")
    ctx.sub.put("WeightCommits", index, hotkey, [*commits, (commit_hash, epoch, ctx.block, 0)])
    neurons.set_last_update(ctx, index, uid)
    ctx.emit("SubtensorModule", "WeightsCommitted", [hotkey, index, commit_hash])


@call("SubtensorModule", "reveal_weights", free=True)
def reveal_weights(
    ctx: Context, netuid: int, uids: list[int], values: list[int], salt: list[int], version_key: int
) -> None:
    reveal_mechanism_weights(ctx, netuid, 0, uids, values, salt, version_key)


@call("SubtensorModule", "reveal_mechanism_weights", free=True)
def reveal_mechanism_weights(
    ctx: Context, netuid: int, mecid: int, uids: list[int], values: list[int], salt: list[int], version_key: int
) -> None:
    index = mechanisms.ensure(ctx, netuid, mecid)
    hotkey = ctx.signed()
    ctx.ensure(ctx.sub.get("CommitRevealWeightsEnabled", netuid), "CommitRevealDisabled")
    commits = ctx.sub.get("WeightCommits", index, hotkey) or []
    revealed = hash_weights(hotkey, index, uids, values, salt, version_key)
    epoch, period = current_epoch(ctx, netuid), ctx.sub.get("RevealPeriodEpochs", netuid)
    place = next((index for index, item in enumerate(commits) if item[0] == revealed), None)
    ctx.ensure(commits, "NoWeightsCommitFound")
    ctx.ensure(place is not None, "InvalidRevealCommitHashNotMatch")
    assert place is not None
    due = commits[place][1] + period
    ctx.ensure(epoch <= due, "ExpiredWeightCommit")
    ctx.ensure(epoch == due, "RevealTooEarly")
    left = commits[place + 1 :]
    if left:
        ctx.sub.put("WeightCommits", index, hotkey, left)
    else:
        ctx.sub.remove("WeightCommits", index, hotkey)
    store_weights(ctx, netuid, mecid, uids, values, version_key)
    ctx.emit("SubtensorModule", "WeightsRevealed", [hotkey, index, revealed])
