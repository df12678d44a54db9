"""Vectors of every kind of spread, and the codecs under test."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from subnet.diloco.codec import Codec, Fp16, Fp32, Int4, Int8, Sparse

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def codecs() -> list[Codec]:
    return [Fp32(), Fp16(), Int8(16), Int4(8), Int4(32), Sparse(3, 40), Sparse(64, 64)]


@st.composite
def vectors(draw: st.DrawFn, longest: int = 900) -> torch.Tensor:
    """fp32 `[1..longest]`, from one magnitude to 2^60 between them, some or all of them zero."""
    n = draw(st.integers(1, longest))
    rng = np.random.Generator(np.random.Philox(draw(st.integers(0, 2**32))))
    spread = draw(st.sampled_from([0, 3, 30]))
    x = rng.standard_normal(n) * 2.0 ** rng.integers(-spread, spread + 1, n)
    x[rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.0
    return torch.from_numpy(x.astype(np.float32))
