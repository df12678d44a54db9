"""Commit-reveal by hash: where a subnet hides weights, and its chain hears no beacon that would open sealed ones.

The SDK seals weights to a round of drand, and the chain opens them by itself; a development chain without internet
cannot. The chain's older calls work everywhere: commit a salted hash, and reveal what it is of `period` epochs later,
within that one epoch. The hash is blake2b-256 of the SCALE tuple (hotkey, netuid, uids, values, salt, version key).
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from hashlib import blake2b

import bittensor as bt
from bittensor.intents.weights import clip_to_max_weight, normalize
from bittensor_core import ss58_decode

from subnet.chain.client import Chain, WeightsOutcome
from subnet.chain.errors import ChainRefused
from subnet.chain.keys import Hotkey
from subnet.chain.rpc import compact, refusal, unhex

BEACON_SILENCE = 600
"""Seconds without a new round after which the chain counts as hearing no beacon; drand's quicknet has one every 3 s."""
SALT_NUMBERS = 16
U16_MAX = 0xFFFF

_store = bt.storage.SubtensorModule


@dataclass(frozen=True)
class Sealed:
    """Weights as the chain takes them, and the salt that hides them; all but the key 16 bits wide."""

    uids: tuple[int, ...]
    values: tuple[int, ...]
    salt: tuple[int, ...]
    version_key: int

    def digest(self, netuid: int, hotkey: str) -> bytes:
        """32 bytes. hotkey: ss58."""
        parts = [bytes(ss58_decode(hotkey)), netuid.to_bytes(2, "little")]
        for numbers in (self.uids, self.values, self.salt):
            parts += [compact(len(numbers)), *(number.to_bytes(2, "little") for number in numbers)]
        return blake2b(b"".join([*parts, self.version_key.to_bytes(8, "little")]), digest_size=32).digest()


@dataclass(frozen=True)
class Standing:
    """What a hotkey has committed and not revealed, as of a block."""

    block: int
    epoch: int
    """That a transaction in the next block falls into, or the one after it."""
    tempo: int
    next_epoch_block: int
    """Where the next epoch is expected to begin."""
    due: dict[bytes, int]
    """By hash, the one epoch in which it may be revealed."""


class Commits:
    """One hotkey's weights on one subnet, committed by hash. Its calls raise ChainUnreachable."""

    def __init__(self, chain: Chain, netuid: int, hotkey: Hotkey) -> None:
        self._chain = chain
        self._netuid = netuid
        self._hotkey = hotkey

    def digest(self, sealed: Sealed) -> bytes:
        return sealed.digest(self._netuid, self._hotkey.ss58)

    async def needed(self) -> bool:
        """Whether weights are hidden on this subnet, and nothing would open what the SDK seals."""
        if not await self._chain.query(_store.CommitRevealWeightsEnabled, [self._netuid]):
            return False
        now = int(await self._chain.query(bt.storage.Timestamp.Now, [])) / 1000
        return not hears_beacon(int(await self._chain.query(bt.storage.Drand.LastStoredRound, [])), now)

    async def seal(self, weights: dict[int, float], version_key: int) -> Sealed:
        """Weights by uid, clipped and quantised as the SDK does. Raises ChainRefused when they are too few."""
        largest, least = await asyncio.gather(
            self._chain.query(_store.MaxWeightsLimit, [self._netuid]),
            self._chain.query(_store.MinAllowedWeights, [self._netuid]),
        )
        limit = 1.0 if largest is None else int(largest) / U16_MAX
        try:
            uids, values = normalize(list(weights), clip_to_max_weight(list(weights.values()), limit))
        except bt.BittensorError as error:
            raise refusal("commit_weights", error) from error
        if len(uids) < int(least or 0):
            raise ChainRefused(f"subnet {self._netuid} wants {least} or more weights above zero, not {len(uids)}")
        salt = tuple(secrets.randbelow(U16_MAX + 1) for _ in range(SALT_NUMBERS))
        return Sealed(tuple(uids), tuple(values), salt, version_key)

    async def commit(self, sealed: Sealed) -> WeightsOutcome:
        call = bt.calls.SubtensorModule.commit_weights(
            netuid=self._netuid, commit_hash="0x" + self.digest(sealed).hex()
        )
        try:
            await self._chain.submit(call, self._hotkey.keypair, "hotkey")
        except ChainRefused as error:
            return await self._chain.refused_weights(error, self._netuid, self._hotkey.ss58)
        return WeightsOutcome(True, committed=True)

    async def reveal(self, sealed: Sealed) -> None:
        """Raises ChainRefused: no permit, not the epoch, an old version key."""
        call = bt.calls.SubtensorModule.reveal_weights(
            netuid=self._netuid,
            uids=list(sealed.uids),
            values=list(sealed.values),
            salt=list(sealed.salt),
            version_key=sealed.version_key,
        )
        await self._chain.submit(call, self._hotkey.keypair, "hotkey")

    async def standing(self) -> Standing:
        """Of the newest block. Eight requests."""
        block = (await self._chain.head()).number
        items = (_store.SubnetEpochIndex, _store.RevealPeriodEpochs, _store.Tempo, _store.LastEpochBlock,
                 _store.PendingEpochAt)  # fmt: skip
        reads = [self._chain.query(item, [self._netuid], block) for item in items]
        commits = self._chain.query(_store.WeightCommits, [self._netuid, self._hotkey.ss58], block)
        *schedule, listed = await asyncio.gather(*reads, commits)
        epoch, period, tempo, last, pending = (int(number or 0) for number in schedule)
        following = last + tempo if not pending else min(last + tempo, pending)
        return Standing(
            block, epoch, tempo, following, {unhex(item[0]): int(item[1]) + period for item in listed or []}
        )


def hears_beacon(newest_round: int, now: float) -> bool:
    """Whether the newest round that a chain knows of is recent. now: Unix time in seconds, the chain's."""
    return newest_round > 0 and now - bt.timelock.reveal_time(newest_round).timestamp() < BEACON_SILENCE
