"""Who trains and is evaluated on which samples: a pure function of seed, round and uid, recomputable by anyone in O(1).

Not a sampler with state. An epoch's order is a keyed permutation of the sample indices: a Feistel network over the
next power of four, with cycle walking back into the range (Black and Rogaway, "Ciphers with arbitrary finite domains").
"""

from __future__ import annotations

import hashlib

import numpy as np

_ROUNDS = 8
_EPOCH, _HELD_OUT, _OWN = b"sn38/epoch/1", b"sn38/held-out/1", b"sn38/own/1"


def sample_ids(
    seed: int | bytes,
    epoch_size: int,
    round_index: int,
    uid: int,
    max_uids: int,
    count: int,
    offset: int = 0,
    *,
    per_round: int | None = None,
) -> np.ndarray:
    """int64 [count]: training samples `offset` to `offset + count` of `uid` in a round; indices below `epoch_size`.

    Every uid below `max_uids` owns an equal share of each epoch, disjoint from all others, and works through it round
    after round, `per_round` samples at a time: the same number for all peers and rounds (inner_steps * batch_size),
    by default `count`, which is right when a round is asked for at once. After the share comes a newly keyed epoch.
    Raises ValueError for arguments out of range.
    """
    per_round = count if per_round is None else per_round
    share = epoch_size // max_uids if max_uids > 0 else 0
    if share < 1:
        raise ValueError(f"{epoch_size} samples cannot be shared by {max_uids} uids")
    if not 0 <= uid < max_uids or round_index < 0:
        raise ValueError(f"uid {uid} or round {round_index} out of range")
    if count < 0 or offset < 0 or offset + count > per_round:
        raise ValueError(f"samples {offset} to {offset + count} are not within the {per_round} of a round")
    out = np.empty(count, dtype=np.int64)
    first = round_index * per_round + offset
    done = 0
    while done < count:
        epoch, position = divmod(first + done, share)
        n = min(count - done, share - position)
        slots = np.arange(position, position + n, dtype=np.int64) * max_uids + uid
        out[done : done + n] = permute(_key(_EPOCH, seed) + epoch.to_bytes(16, "little"), epoch_size, slots)
        done += n
    return out


def held_out_ids(beacon: bytes, num_held_out: int, count: int) -> np.ndarray:
    """int64 [min(count, num_held_out)]: distinct held-out samples drawn by a block hash of the future."""
    return permute(_key(_HELD_OUT, beacon), num_held_out, np.arange(min(count, num_held_out), dtype=np.int64))


def own_ids(beacon: bytes, ids: np.ndarray, count: int) -> np.ndarray:
    """int64 [min(count, len(ids))]: a draw without replacement from a peer's assigned `ids`."""
    return ids[permute(_key(_OWN, beacon), len(ids), np.arange(min(count, len(ids)), dtype=np.int64))]


def permute(key: bytes, size: int, positions: np.ndarray) -> np.ndarray:
    """int64, the shape of `positions`: where the permutation of range(size) keyed by `key` sends them.

    Raises ValueError for positions outside the range.
    """
    if positions.size == 0:
        return positions.astype(np.int64)
    if positions.min() < 0 or positions.max() >= size or size > 2**62:
        raise ValueError(f"positions must be within the permutation's {size} elements")
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    digest = hashlib.blake2b(key, digest_size=8 * _ROUNDS).digest()
    round_keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
    out = _feistel(positions.astype(np.uint64), half, mask, round_keys)
    # the network permutes at most 4 * size values; walking the cycle until back in range permutes the range
    while (outside := out >= size).any():
        out[outside] = _feistel(out[outside], half, mask, round_keys)
    return out.astype(np.int64)


def _feistel(x: np.ndarray, half: np.uint64, mask: np.uint64, round_keys: np.ndarray) -> np.ndarray:
    left, right = x >> half, x & mask
    for key in round_keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half) | right


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele et al. 2014) on each uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _key(domain: bytes, seed: int | bytes) -> bytes:
    raw = seed if isinstance(seed, bytes) else seed.to_bytes(16, "little")
    return hashlib.blake2b(domain + raw, digest_size=32).digest()
