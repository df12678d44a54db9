"""Merkle trees over leaf byte strings, with proofs for contiguous runs of leaves.

Not a store of leaves. The shape is RFC 9162's (an odd last node moves up unchanged) with blake2b-256, separate domains
for leaves, inner nodes and roots, and the number of leaves hashed into the root, so no tree passes for another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import chain

HASH_BYTES = 32
_LEAF = b"sn38/leaf/1\0"
_NODE = b"sn38/node/1\0"
_ROOT = b"sn38/root/1\0"
_OWNED = b"sn38/owned/1\0"
_MAX_LEAVES = 2**48

Buffer = bytes | bytearray | memoryview


def leaf_hash(data: Buffer) -> bytes:
    """Hash (32 bytes) of one leaf; `data` is read without a copy."""
    h = blake2b(_LEAF, digest_size=HASH_BYTES)
    h.update(data)
    return h.digest()


def hash_leaves(leaves: Sequence[Buffer]) -> list[bytes]:
    """`leaf_hash` of every leaf, on all cores: hashlib lets go of the interpreter lock for leaves above 2 KiB."""
    workers = min(os.cpu_count() or 1, 16)
    if workers == 1 or len(leaves) < 64:
        return [leaf_hash(leaf) for leaf in leaves]
    run = -(-len(leaves) // (4 * workers))
    with ThreadPoolExecutor(workers) as pool:
        starts = range(0, len(leaves), run)
        return list(chain.from_iterable(pool.map(lambda a: [leaf_hash(x) for x in leaves[a : a + run]], starts)))


class Tree:
    """All levels of one tree, for many proofs at O(log n) each. Raises ValueError for no leaves or a bad hash."""

    def __init__(self, leaf_hashes: Sequence[bytes]) -> None:
        if not leaf_hashes:
            raise ValueError("a tree needs at least one leaf")
        if not all(_is_hash(h) for h in leaf_hashes):
            raise ValueError(f"every leaf hash must be {HASH_BYTES} bytes")
        self.levels: list[Sequence[bytes]] = [leaf_hashes]
        while len(self.levels[-1]) > 1:
            self.levels.append(_parents(self.levels[-1]))
        self.root = _bind(len(leaf_hashes), self.levels[-1][0])

    def range_proof(self, start: int, stop: int) -> list[bytes]:
        """The hashes that `verify_range` needs beside those of the leaves `[start, stop)`: bottom up, left first.

        At most two per level. Raises ValueError for an empty or outlying range.
        """
        if not 0 <= start < stop <= len(self.levels[0]):
            raise ValueError(f"no leaves [{start}, {stop}) in a tree of {len(self.levels[0])}")
        proof = []
        for level in self.levels:
            if start % 2:
                proof.append(level[start - 1])
            if stop % 2 and stop < len(level):
                proof.append(level[stop])
            start, stop = start // 2, (stop + 1) // 2
        return proof


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Root (32 bytes) of the tree over `leaf_hashes`. Raises ValueError as `Tree` does."""
    return Tree(leaf_hashes).root


def range_proof(leaf_hashes: Sequence[bytes], start: int, stop: int) -> list[bytes]:
    """A single proof, O(n); see `Tree.range_proof`."""
    return Tree(leaf_hashes).range_proof(start, stop)


def owned(root: bytes, owner: str) -> bytes:
    """The root that `owner` publishes for its tree: nobody can claim the same tree without having seen `root` itself.

    An empty owner is nobody: the root stays as it is.
    """
    return blake2b(_OWNED + owner.encode() + root, digest_size=HASH_BYTES).digest() if owner else root


def verify_range(
    root: bytes, n_leaves: int, start: int, hashes: Sequence[bytes], proof: Sequence[bytes], owner: str = ""
) -> bool:
    """Whether `hashes` are those of the leaves `start, start + 1, ...` of the tree with this root and leaf count.

    With an `owner`, `root` is the one that `owned` gives.
    Total: whatever strangers put into the arguments, the answer is True or False. Only the exact proof passes.
    """
    stop = start + len(hashes)
    if not (0 <= start < stop <= n_leaves <= _MAX_LEAVES and all(map(_is_hash, chain(hashes, proof)))):
        return False
    level, size, rest = list(hashes), n_leaves, iter(proof)
    try:
        while size > 1:
            if start % 2:
                level.insert(0, next(rest))
            if stop % 2 and stop < size:
                level.append(next(rest))
            # Only the tree's own last node may stay unpaired, and then at an even place: pairs line up from `start`.
            level = _parents(level)
            start, stop, size = start // 2, (stop + 1) // 2, (size + 1) // 2
    except StopIteration:
        return False
    return next(rest, None) is None and owned(_bind(n_leaves, level[0]), owner) == root


def _parents(level: Sequence[bytes]) -> list[bytes]:
    paired = len(level) - len(level) % 2
    above = [_node(level[i], level[i + 1]) for i in range(0, paired, 2)]
    above.extend(level[paired:])
    return above


def _node(left: bytes, right: bytes) -> bytes:
    return blake2b(_NODE + left + right, digest_size=HASH_BYTES).digest()


def _bind(n_leaves: int, top: bytes) -> bytes:
    return blake2b(_ROOT + n_leaves.to_bytes(8, "little") + top, digest_size=HASH_BYTES).digest()


def _is_hash(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == HASH_BYTES
