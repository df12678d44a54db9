"""Updates that are kept for others: as many as the last steps in a row, read back leaf by leaf."""

from __future__ import annotations

import asyncio
from pathlib import Path

from subnet.diloco.merkle import hash_leaves, root
from subnet.exchange.history import KEPT_UPDATES, History
from subnet.swarm.store import BlobStore


def update(step: int) -> list[bytes]:
    return [bytes([step]) * 5, b"", bytes([step, 1])]


def test_the_last_updates_are_on_offer_and_older_ones_gone(tmp_path: Path) -> None:
    store = BlobStore()
    history = History(tmp_path / "updates", store)
    for step in range(1, KEPT_UPDATES + 3):
        history.add(step, update(step))
    steps = range(KEPT_UPDATES + 2, 2, -1)
    assert history.roots == tuple(root(hash_leaves(update(step))) for step in steps)
    assert len(store) == KEPT_UPDATES == len(list(history.folder.iterdir()))
    for kept, step in zip(history.roots, steps, strict=True):
        entry = store.entry(kept)
        assert entry is not None and [entry.leaf(i) for i in range(3)] == update(step)
        assert asyncio.run(entry.tree()).root == kept


def test_rounds_in_which_nothing_came_have_one_root_and_stay_on_offer(tmp_path: Path) -> None:
    store = BlobStore()
    history = History(tmp_path / "updates", store)
    for step in range(1, KEPT_UPDATES + 3):
        history.add(step, [b"", b""])
    assert len(history.roots) == KEPT_UPDATES and len(store) == 1


def test_nothing_is_left_of_what_was_forgotten_or_of_an_earlier_process(tmp_path: Path) -> None:
    store = BlobStore()
    history = History(tmp_path / "updates", store)
    history.add(1, update(1))
    history.clear()
    assert history.roots == () and len(store) == 0 and not list(history.folder.iterdir())
    (history.folder / "7.bin").write_bytes(b"old")
    assert not History(tmp_path / "updates", store).folder.exists()
