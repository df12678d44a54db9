"""The last updates that this peer took its outer steps with, on disk and on offer: whoever was down replays them.

Not a log to learn from: the reduced parts' own bytes, leaf by leaf of the layout, whoever reduced them and however the
roster cut them. Peers that took the same steps keep the same bytes, under the same roots.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from subnet.diloco.merkle import Tree, hash_leaves
from subnet.swarm.store import BlobStore

KEPT_UPDATES = 8
"""A replay of more would cost about as many bytes as the state, 8 a parameter."""


class History:
    """Of the `KEPT_UPDATES` last steps in a row; `folder` is its own."""

    def __init__(self, folder: Path, store: BlobStore) -> None:
        self.folder = folder
        self.store = store
        self._kept: deque[_OnDisk] = deque()
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def roots(self) -> tuple[bytes, ...]:
        """Merkle roots of the updates, the last one first."""
        return tuple(kept.tree.root for kept in reversed(self._kept))

    def add(self, step: int, leaves: Sequence[bytes]) -> None:
        """Keep the update that led to outer `step`: every leaf encoded, or empty where its part was missing.

        Raises OSError (a full disk) with nothing kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{step}.bin"
        try:
            path.write_bytes(b"".join(leaves))
            kept = _OnDisk(path, leaves)
        except OSError:
            self.clear()
            raise
        self._kept.append(kept)
        self.store.add(kept.tree.root, kept, tree=kept.tree)
        if len(self._kept) > KEPT_UPDATES:
            self._forget(self._kept.popleft())

    def clear(self) -> None:
        """Forget all: the state that this peer goes on from came otherwise."""
        while self._kept:
            self._forget(self._kept.popleft())

    def _forget(self, kept: _OnDisk) -> None:
        if kept.tree.root not in self.roots:  # rounds in which nothing came have one root
            self.store.drop(kept.tree.root)
        kept.close()


class _OnDisk:
    """An update's leaves in one file, as the blob store reads them."""

    def __init__(self, path: Path, leaves: Sequence[bytes]) -> None:
        self.tree = Tree(hash_leaves(leaves))
        self._ends = [0, *accumulate(map(len, leaves))]
        self._path = path
        self._file = os.open(path, os.O_RDONLY)

    def leaf_hashes(self) -> Sequence[bytes]:
        return self.tree.levels[0]

    def leaf(self, index: int) -> bytes:
        start, stop = self._ends[index], self._ends[index + 1]
        return os.pread(self._file, stop - start, start)

    def close(self) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)
