"""Int4 against a written-out reference, its error bound, and what strangers may send it."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.codec import CodecError, Int4
from subnet.diloco.codec.int4 import LEVELS

from .conftest import vectors

F = np.float32


def nearest(step: int) -> int:
    """Code of the level nearest to step / 112; of two equally near the one nearer to zero."""
    return min(range(16), key=lambda c: (abs(step * 128 - LEVELS[c] * 112), abs(LEVELS[c])))


def reference_int4(x: np.ndarray, block: int) -> bytes:
    """The format, one block at a time, in numpy fp32."""
    top = np.abs(x).max()
    scale = min(top, F(2.0**100)) if top >= F(2.0**-100) else F(0)
    shares, codes = bytearray(), []
    for start in range(0, len(x), block):
        part = np.clip(x[start : start + block], -scale, scale)
        absmax = np.abs(part).max()
        if scale == 0:
            shares.append(0)
            codes += [0] * len(part)
            continue
        bits = int(F(absmax / scale).view(np.int32)) >> 20
        code = min(max(bits - 889, 0), 127)
        negative = -part.min() > part.max()
        shares.append(code | negative << 7)
        signed = scale * np.int32((code + 889) << 20).view(F) * F(-1 if negative else 1)
        codes += [nearest(int(step)) for step in np.rint(part * (F(112) / signed))]
    codes += [0] * (len(codes) % 2)
    return scale.tobytes() + bytes(shares) + bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2], strict=True))


@settings(max_examples=80, deadline=None)
@given(vectors(), st.sampled_from([2, 8, 100, 256]))
def test_int4_is_the_reference_within_its_bound(x: torch.Tensor, block: int) -> None:
    codec = Int4(block)
    data = codec.encode(x)
    assert data == reference_int4(x.numpy(), block)
    assert len(data) == codec.encoded_size(x.numel())
    y = codec.decode(data, x.numel())
    for a, b in zip(x.split(block), y.split(block), strict=True):
        bound = max(float(a.abs().max()) / 4, float(x.abs().max()) * 2.0**-19)
        assert float((a.double() - b.double()).abs().max()) <= bound


def test_golden_bytes(values: Callable[..., torch.Tensor], threads: Callable[[int], None]) -> None:
    x = values(300_001, 1)
    for count in (1, 2):
        threads(count)
        data = Int4(128).encode(x)
        assert blake2b(data, digest_size=16).hexdigest() == "912fc17877265339b0de2c6b8c77450c"
        decoded = Int4(128).decode(data, x.numel())
        assert blake2b(decoded.numpy().tobytes(), digest_size=16).hexdigest() == "fe138d6bb5c534a23820c7fa76e81214"


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 1e-40, 2.0**-101, 2.0**101])
def test_a_bad_scale_is_refused(scale: float) -> None:
    codec = Int4(4)
    data = bytearray(codec.encode(torch.arange(10.0)))
    data[:4] = F(scale).tobytes()
    with pytest.raises(CodecError, match="scale"):
        codec.decode(bytes(data), 10)


def test_the_code_after_the_last_element_is_zero() -> None:
    codec = Int4(4)
    good = codec.encode(torch.arange(11.0))
    with pytest.raises(CodecError, match="after the last"):
        codec.decode(good[:-1] + bytes([good[-1] | 0x10]), 11)


def test_every_byte_of_share_and_code_decodes_to_a_product() -> None:
    """Two multiplies: leaf scale times share, times level."""
    scale = F(2.0**-100)
    for share in range(256):
        data = scale.tobytes() + bytes([share]) + bytes(range(256))
        y = Int4(512).decode(data, 512).numpy()
        block = scale * np.int32((share % 128 + 889) << 20).view(F) * F(-1 if share >= 128 else 1)
        expected = np.array([[LEVELS[b % 16], LEVELS[b // 16]] for b in range(256)], F).ravel() * (block / F(128))
        assert (y == expected).all()


def test_blocks_are_even() -> None:
    with pytest.raises(ValueError, match="even"):
        Int4(7)
    with pytest.raises(ValueError, match="block"):
        Int4(0)
