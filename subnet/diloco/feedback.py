"""Error feedback: what a round did not carry is kept and added to the next pseudo-gradient.

Not a codec. Seide et al. 2014 for the quantisation error; here it also keeps whole parts that no reducer delivered
and whole commitments that were dropped, so that nothing a miner computed is lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from subnet.diloco.codec import check_finite


class ErrorFeedback:
    """`residual`, fp32 CPU `[numel]`: what is still owed to the average.

    A round is `x = add(delta)`, encode x, exchange, `settle(sent, carried)`. From `add` on all of x is owed, so a
    round that breaks off, or is never settled, costs nothing.
    """

    def __init__(self, numel: int, decay: float = 1.0) -> None:
        """`decay` in 0..1 multiplies the residual when a delta is added; below 1 old errors fade on purpose."""
        if not 0.0 <= decay <= 1.0:
            raise ValueError(f"decay must be within 0..1, got {decay}")
        self.decay = decay
        self.residual = torch.zeros(numel, dtype=torch.float32)

    def add(self, delta: Tensor) -> Tensor:
        """What to send, fp32 `[numel]`: `delta + decay * residual`. It is the new residual: encode it before `settle`.

        Raises CodecError, with the residual unchanged, if a value is not finite.
        """
        self._check(delta)
        x = torch.mul(self.residual, self.decay).add_(delta)
        check_finite(x)
        self.residual = x
        return x

    def settle(self, sent: Tensor, carried: Iterable[tuple[int, int]]) -> None:
        """Owe no longer what `sent`, fp32 `[numel]`, the decoded form of what was encoded, brought into the average.

        `carried`: disjoint element ranges `(start, stop)` that entered it; none when the commitment was dropped.
        Raises ValueError, with the residual unchanged, for ranges that overlap or lie outside.
        """
        self._check(sent)
        ranges, end = sorted(carried), 0
        for start, stop in ranges:
            if not end <= start <= stop <= sent.numel():
                raise ValueError(f"carried ranges overlap or lie outside of {sent.numel()} elements: ({start}, {stop})")
            end = stop
        for start, stop in ranges:
            self.residual[start:stop].sub_(sent[start:stop])

    def add_range(self, start: int, stop: int, values: Tensor) -> None:
        """Owe `values`, fp32 `[stop - start]`, on those elements as well.

        A reducer adds its output codec's error this way, times total weight / own weight: its own share of the next
        mean then restores it for everybody.
        """
        if not 0 <= start <= stop <= self.residual.numel() or values.shape != (stop - start,):
            raise ValueError(f"values {list(values.shape)} do not fit the elements ({start}, {stop})")
        check_finite(values)
        self.residual[start:stop].add_(values)

    def load(self, residual: Tensor) -> None:
        """Take over the residual of a checkpoint, fp32 `[numel]`. Raises ValueError if it is another model's."""
        self._check(residual)
        self.residual = residual

    def _check(self, x: Tensor) -> None:
        if x.shape != self.residual.shape or x.dtype != torch.float32:
            raise ValueError(f"expected fp32 [{self.residual.numel()}], got {x.dtype} {list(x.shape)}")
