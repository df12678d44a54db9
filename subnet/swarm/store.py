"""Trees of leaves this peer offers to others, by Merkle root, for as long as their round matters.

Not a cache of what others offer and nothing on disk: whoever adds a tree holds its bytes anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from subnet.diloco.merkle import Tree, hash_leaves, owned

MAX_TREES = 4096

_IN_LINE_BYTES = 1 << 20


class LeafProvider(Protocol):
    """Leaves made on demand, as of a state too large to hold twice; what it returns must not change."""

    def leaf_hashes(self) -> Sequence[bytes]:
        """Hashes of all leaves, in order."""

    def leaf(self, index: int) -> bytes:
        """One leaf's bytes."""


@dataclass
class Entry:
    """One offered tree: `root` is bound to `owner`, if it has one; no byte is shown before `not_before_block`."""

    root: bytes
    leaves: Sequence[bytes] | LeafProvider
    not_before_block: float
    keep_until_round: int | None
    owner: str = ""
    known_tree: Tree | None = field(default=None, repr=False)
    _tree: asyncio.Future[Tree] | None = field(default=None, repr=False)

    def leaf(self, index: int) -> bytes:
        """The bytes of leaf `index`."""
        return self.leaves[index] if isinstance(self.leaves, Sequence) else self.leaves.leaf(index)

    async def tree(self) -> Tree:
        """The hash tree, computed when first asked for. Raises ValueError if the leaves do not have this root."""
        if self._tree is None:
            self._tree = asyncio.ensure_future(self._hash())
        return await asyncio.shield(self._tree)

    async def _hash(self) -> Tree:
        leaves = self.leaves
        if self.known_tree is not None:
            tree = self.known_tree
        elif isinstance(leaves, Sequence) and sum(map(len, leaves)) <= _IN_LINE_BYTES:
            tree = Tree(hash_leaves(leaves))
        else:
            tree = await asyncio.to_thread(_tree_of, leaves)
        if owned(tree.root, self.owner) != self.root:
            raise ValueError("leaves that do not have the root they were added under")
        return tree


class BlobStore:
    """The trees on offer. At most `max_trees`: beyond that the ones of the oldest round go first, pinned ones last."""

    def __init__(self, max_trees: int = MAX_TREES) -> None:
        self.max_trees = max_trees
        self._entries: dict[bytes, Entry] = {}

    def add(
        self,
        root: bytes,
        leaves: Sequence[bytes] | LeafProvider,
        *,
        tree: Tree | None = None,
        not_before_block: float = 0.0,
        keep_until_round: int | None = None,
        owner: str = "",
    ) -> None:
        """Offer the tree with this root, bound to `owner` if given: leaf byte strings, or a provider of them.

        `tree`: of these leaves, where it is at hand; otherwise it is made when first asked for.
        Nothing is shown before `not_before_block`. It is offered through round `keep_until_round` (None: until
        dropped). A tree already on offer stays as it is, but for a later `keep_until_round`.
        """
        known = self._entries.get(root)
        if known is not None:
            if keep_until_round is None or known.keep_until_round is None:
                known.keep_until_round = None
            else:
                known.keep_until_round = max(known.keep_until_round, keep_until_round)
            return
        self._entries[root] = Entry(root, leaves, not_before_block, keep_until_round, owner, tree)
        if len(self._entries) > self.max_trees:
            del self._entries[min(self._entries, key=self._last_round)]

    def get(self, root: bytes) -> Sequence[bytes] | None:
        """The leaves of a tree that was added as leaf byte strings; None if there is none."""
        entry = self._entries.get(root)
        return entry.leaves if entry is not None and isinstance(entry.leaves, Sequence) else None

    def entry(self, root: bytes) -> Entry | None:
        """The tree with this root, if it is on offer."""
        return self._entries.get(root)

    def drop(self, root: bytes) -> None:
        """Stop offering one tree; no error if it is not on offer."""
        self._entries.pop(root, None)

    def drop_before(self, round_index: int) -> None:
        """Stop offering every tree that was to be kept until a round before this one."""
        self._entries = {root: e for root, e in self._entries.items() if self._last_round(root) >= round_index}

    def __len__(self) -> int:
        return len(self._entries)

    def _last_round(self, root: bytes) -> float:
        last = self._entries[root].keep_until_round
        return float("inf") if last is None else last


def _tree_of(leaves: Sequence[bytes] | LeafProvider) -> Tree:
    return Tree(hash_leaves(leaves) if isinstance(leaves, Sequence) else leaves.leaf_hashes())
