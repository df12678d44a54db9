from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from subnet.diloco.merkle import Tree, hash_leaves
from subnet.swarm.store import BlobStore


def tree_of(leaves: Sequence[bytes]) -> Tree:
    return Tree(hash_leaves(leaves))


LEAVES = [bytes([i]) * (i + 1) for i in range(9)]
ROOT = tree_of(LEAVES).root


class Provider:
    """Leaves made on demand."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def leaf_hashes(self) -> list[bytes]:
        return hash_leaves(LEAVES)

    def leaf(self, index: int) -> bytes:
        self.made.append(index)
        return LEAVES[index]


def test_rounds_decide_what_is_kept() -> None:
    store = BlobStore()
    store.add(b"a", [b"1"], keep_until_round=3)
    store.add(b"b", [b"2"], keep_until_round=5)
    store.add(b"pinned", [b"3"])
    store.drop_before(3)
    assert len(store) == 3
    store.drop_before(4)
    assert store.get(b"a") is None
    assert store.get(b"b") == [b"2"]
    store.drop_before(10**9)
    assert store.get(b"pinned") == [b"3"]
    store.drop(b"pinned")
    store.drop(b"pinned")
    assert len(store) == 0


def test_adding_again_extends_and_never_shows_earlier() -> None:
    store = BlobStore()
    store.add(b"a", [b"1"], not_before_block=100, keep_until_round=3)
    store.add(b"a", [b"1"], keep_until_round=5)
    store.add(b"a", [b"1"], keep_until_round=4)
    entry = store.entry(b"a")
    assert entry is not None
    assert (entry.keep_until_round, entry.not_before_block) == (5, 100)
    store.add(b"a", [b"1"])
    store.drop_before(10**9)
    assert store.get(b"a") == [b"1"]


def test_it_is_bounded() -> None:
    store = BlobStore(max_trees=3)
    store.add(b"pinned", [b""])
    for round_ in (7, 2, 9, 5):
        store.add(bytes([round_]), [b""], keep_until_round=round_)
    assert len(store) == 3
    assert store.get(b"pinned") is not None
    assert store.get(b"\x09") is not None
    assert store.get(b"\x02") is None


def test_trees_are_hashed_once_and_must_have_their_root() -> None:
    async def main() -> None:
        store = BlobStore()
        provider = Provider()
        store.add(ROOT, provider)
        entry = store.entry(ROOT)
        assert entry is not None
        first, second = await asyncio.gather(entry.tree(), entry.tree())
        assert first is second
        assert first.root == ROOT
        assert entry.leaf(4) == LEAVES[4]
        assert provider.made == [4]
        assert store.get(ROOT) is None
        store.add(b"wrong", LEAVES)
        wrong = store.entry(b"wrong")
        assert wrong is not None
        with pytest.raises(ValueError, match="do not have the root"):
            await wrong.tree()

    asyncio.run(main())
