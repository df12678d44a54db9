"""A local training state on disk, in leaves under a hash that others can pull: parameters and the optimizer's moments.

Not a checkpoint (that is for this node, and survives a crash): it is kept as long as somebody may ask for it. The
leaves are the layout's, raw fp32, of the parameters first, then of the first and the second moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves

VECTORS = 3
"""Parameters, first moments, second moments."""
_ITEM = 4


def num_leaves(layout: Layout) -> int:
    """Of a snapshot."""
    return VECTORS * layout.num_leaves


def leaf_bytes(layout: Layout, index: int) -> int:
    """Size of a snapshot's leaf."""
    first, last = layout.leaves[index % layout.num_leaves]
    return (last - first) * _ITEM


def hashed(layout: Layout, vectors: Sequence[Tensor]) -> Tree:
    """The tree of a snapshot of these `VECTORS` flat fp32 CPU vectors `[numel]`."""
    pieces = []
    for vector in vectors:
        view = memoryview(_bytes_of(vector))
        pieces += [view[first * _ITEM : last * _ITEM] for first, last in layout.leaves]
    return Tree(hash_leaves(pieces))


def opened(layout: Layout, leaves: Sequence[bytes], first: int) -> Tensor:
    """Snapshot leaves from index `first` on as one flat fp32 vector. Raises ValueError: wrong size, or not finite."""
    for index, leaf in enumerate(leaves, first):
        if len(leaf) != leaf_bytes(layout, index):
            raise ValueError(f"snapshot leaf {index} has {len(leaf)} bytes")
    flat = torch.from_numpy(np.frombuffer(b"".join(leaves), dtype="<f4").astype(np.float32))
    if not bool(torch.isfinite(flat).all()):
        raise ValueError("a snapshot holds numbers that are not finite")
    return flat


class Snapshot:
    """A written snapshot: gives its leaves from disk, one at a time. `tree`: if it is known, or it is hashed again."""

    def __init__(self, path: Path, layout: Layout, tree: Tree | None = None) -> None:
        self.path = path
        self.layout = layout
        self.tree = tree

    @classmethod
    def write(cls, path: Path, layout: Layout, vectors: Sequence[Tensor]) -> Snapshot:
        """Write `VECTORS` flat fp32 CPU vectors `[numel]` to `path`. Raises OSError (disk full)."""
        with path.open("wb") as file:
            for vector in vectors:
                file.write(_bytes_of(vector))
        return cls(path, layout, hashed(layout, vectors))

    def leaf_hashes(self) -> Sequence[bytes]:
        """Hashes of all leaves, in order. Raises ValueError when the file is not a whole snapshot, OSError if gone."""
        if self.tree is not None:
            return self.tree.levels[0]
        whole = np.fromfile(self.path, dtype="<f4").astype(np.float32, copy=False)
        if whole.size != VECTORS * self.layout.numel:
            raise ValueError(f"{self.path} is not a snapshot of this model")
        return hashed(self.layout, torch.from_numpy(whole).split(self.layout.numel)).levels[0]

    def leaf(self, index: int) -> bytes:
        """One leaf's bytes. Raises OSError when the file is gone."""
        vector, leaf = divmod(index, self.layout.num_leaves)
        first, last = self.layout.leaves[leaf]
        with self.path.open("rb") as file:
            file.seek((vector * self.layout.numel + first) * _ITEM)
            return file.read((last - first) * _ITEM)


def _bytes_of(vector: Tensor) -> memoryview:
    return vector.contiguous().numpy().astype("<f4", copy=False).data.cast("B")
