"""Half precision against numpy's, and its range."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from subnet.diloco.codec import CodecError, Fp16, Fp32

from .conftest import vectors


@settings(max_examples=60, deadline=None)
@given(vectors())
def test_fp16_is_the_ieee_conversion(x: torch.Tensor) -> None:
    reference = x.numpy().clip(-65504, 65504).astype("<f2")
    assert Fp16().encode(x) == reference.tobytes()
    assert torch.equal(Fp16().decode(reference.tobytes(), x.numel()), torch.from_numpy(reference.astype(np.float32)))


def test_fp16_saturates() -> None:
    x = torch.tensor([65504.0, 65519.0, 65520.0, -1e30, 3.4e38, 2.0**-24, 2.0**-25, -1.0])
    y = Fp16().decode(Fp16().encode(x), 8)
    assert y.tolist() == [65504.0, 65504.0, 65504.0, -65504.0, 65504.0, 2.0**-24, 0.0, -1.0]


@pytest.mark.parametrize("codec", [Fp16(), Fp32()], ids=lambda codec: codec.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused(codec: Fp16 | Fp32, bad: float) -> None:
    x = np.ones(5, np.float16 if codec.name == "fp16" else np.float32)
    x[3] = bad
    with pytest.raises(CodecError, match="not finite"):
        codec.decode(x.tobytes(), 5)
