"""The consensus state of a run: outer parameters, outer momentum and the outer step, hashed leaf by leaf.

Not a checkpoint (no inner optimizer, no error feedback): it is what all healthy peers hold bit-identical. Its tree has
the layout's leaves twice, parameters then momentum, raw little-endian fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from subnet.diloco import merkle
from subnet.diloco.codec import Fp32, byte_view
from subnet.diloco.layout import Layout

_DOMAIN = b"sn38/state/1\0"
_FP32 = Fp32()


def state_digest(step: int, root: bytes) -> bytes:
    """32 bytes that name a state: hash of its outer step and Merkle root."""
    return blake2b(_DOMAIN + step.to_bytes(8, "little") + root, digest_size=32).digest()


class OuterState:
    """`theta` and `momentum`, fp32 CPU `[numel]`, after `step` outer steps.

    Leaf bytes are made when asked for. The hashes are computed once, in one pass over the tensors without a copy, and
    again only when torch has changed the tensors since.
    """

    def __init__(self, theta: Tensor, momentum: Tensor, step: int, layout: Layout) -> None:
        for name, tensor in (("theta", theta), ("momentum", momentum)):
            if tensor.shape != (layout.numel,) or tensor.dtype != torch.float32 or not tensor.is_contiguous():
                raise ValueError(f"{name} must be contiguous fp32 [{layout.numel}], got {tensor.dtype} {tensor.shape}")
        if step < 0:
            raise ValueError(f"step must not be negative, got {step}")
        self.theta = theta
        self.momentum = momentum
        self.step = step
        self.layout = layout
        self.num_leaves = 2 * layout.num_leaves
        self._hashed: tuple[tuple[int, int], merkle.Tree] | None = None

    def leaf(self, index: int) -> bytes:
        """Bytes of leaf `index` of the tree. Raises CodecError if a value is not finite."""
        return _FP32.encode(self._values(index))

    def leaf_size(self, index: int) -> int:
        """Bytes of leaf `index`."""
        return _FP32.encoded_size(self._values(index).numel())

    def set_leaf(self, index: int, data: bytes) -> None:
        """Overwrite one leaf. Raises CodecError, with nothing changed, for a wrong size or a value not finite."""
        values = self._values(index)
        values.copy_(_FP32.decode(data, values.numel()))

    def leaf_hashes(self) -> Sequence[bytes]:
        """Hash of every leaf, parameters then momentum."""
        return self._tree().levels[0]

    def root(self) -> bytes:
        """Merkle root of the leaves, 32 bytes; says nothing of the step (`digest` does)."""
        return self._tree().root

    def digest(self) -> bytes:
        """32 bytes equal on two peers exactly when step, parameters and momentum are."""
        return state_digest(self.step, self.root())

    def clone(self) -> OuterState:
        """A copy that shares no memory."""
        return OuterState(self.theta.clone(), self.momentum.clone(), self.step, self.layout)

    def _tree(self) -> merkle.Tree:
        stamp = (self.theta._version, self.momentum._version)  # torch's count of in-place changes
        if self._hashed is None or self._hashed[0] != stamp:
            hashes = merkle.hash_leaves([*self._views(self.theta), *self._views(self.momentum)])
            self._hashed = stamp, merkle.Tree(hashes)
        return self._hashed[1]

    def _values(self, index: int) -> Tensor:
        """View of the elements of leaf `index`."""
        if not 0 <= index < self.num_leaves:
            raise IndexError(f"no leaf {index} in a state of {self.num_leaves}")
        tensor = self.theta if index < self.layout.num_leaves else self.momentum
        start, stop = self.layout.leaves[index % self.layout.num_leaves]
        return tensor[start:stop]

    def _views(self, tensor: Tensor) -> list[memoryview]:
        data = byte_view(tensor)
        return [data[_FP32.encoded_size(a) : _FP32.encoded_size(b)] for a, b in self.layout.leaves]
