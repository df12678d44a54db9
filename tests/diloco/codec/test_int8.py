"""Int8 against a written-out reference, its error bound, and what strangers may send it."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.codec import CodecError, Int8

from .conftest import vectors

BIGGEST = 127 * 2.0**94


def reference_int8(x: np.ndarray, block: int) -> bytes:
    """The format, one block at a time, in numpy fp32."""
    scales, codes = [], []
    for start in range(0, len(x), block):
        part = x[start : start + block]
        absmax = np.abs(part).max()
        alive = absmax >= np.float32(2.0**-100)
        scale = min(absmax / np.float32(127), np.float32(2.0**94)) if alive else np.float32(0)
        scales.append(scale)
        codes.append(np.rint(part * (np.float32(127) / absmax)) if alive else part * 0)
    return np.array(scales, "<f4").tobytes() + np.concatenate(codes).astype(np.int8).tobytes()


@settings(max_examples=80, deadline=None)
@given(vectors(), st.sampled_from([1, 8, 100, 256]))
def test_int8_is_the_reference_within_its_bound(x: torch.Tensor, block: int) -> None:
    codec = Int8(block)
    data = codec.encode(x)
    assert data == reference_int8(x.numpy(), block)
    assert len(data) == codec.encoded_size(x.numel())
    y = codec.decode(data, x.numel())
    assert y.dtype == torch.float32 and y.shape == x.shape
    for a, b in zip(x.split(block), y.split(block), strict=True):
        assert float((a.double() - b.double()).abs().max()) <= float(a.abs().max()) / 254 * (1 + 2**-15)


def test_golden_bytes(values: Callable[..., torch.Tensor], threads: Callable[[int], None]) -> None:
    x = values(300_000, 1)
    for count in (1, 2):
        threads(count)
        data = Int8(256).encode(x)
        assert blake2b(data, digest_size=16).hexdigest() == "5763a8a18363bfe4994b4bef4c130b5a"
        decoded = Int8(256).decode(data, x.numel())
        assert blake2b(decoded.numpy().tobytes(), digest_size=16).hexdigest() == "ae7406fb5803dd1ca9f0808fc34ec9e1"


def test_known_bytes() -> None:
    """Two scales (1 and 0), then the codes: halves go to the even neighbour."""
    x = torch.tensor([127.0, -63.5, 0.5, 1.5, 0.0, 0.0])
    data = bytes.fromhex("0000803f" + "00000000" + "7fc00002" + "0000")
    assert Int8(4).encode(x) == data
    assert Int8(4).decode(data, 6).tolist() == [127.0, -64.0, 0.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 2.0**101, -(2.0**101)])
@pytest.mark.parametrize("at", [0, 255, 256, 299])
def test_int8_refuses_to_encode(bad: float, at: int) -> None:
    x = torch.ones(300)
    x[at] = bad
    with pytest.raises(CodecError, match="not finite"):
        Int8(256).encode(x)


def test_tiny_blocks_are_zero_and_denormals_do_no_harm() -> None:
    x = torch.cat([torch.full((256,), 1e-40), torch.full((256,), 2.0**-101), torch.full((256,), 2.0**-100)])
    y = Int8(256).decode(Int8(256).encode(x), x.numel())
    assert not y[:512].any()
    assert torch.allclose(y[512:], x[512:], rtol=1e-6, atol=0.0)


def test_the_mean_of_whatever_decodes_can_be_encoded() -> None:
    """A reducer must not fail on extreme but valid contributions, even when its rounding goes up."""
    codec = Int8(256)
    extreme = np.float32(2.0**94).tobytes() + np.full(256, 127, np.int8).tobytes()
    y = codec.decode(extreme, 256)
    assert float(y[0]) == BIGGEST
    again = codec.decode(codec.encode(y * (1 + 2.0**-12)), 256)
    assert float(again.max()) == BIGGEST
    with pytest.raises(CodecError, match="scale"):
        codec.decode(np.nextafter(np.float32(2.0**94), np.float32(np.inf)).tobytes() + bytes(256), 256)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 1e-40, 2.0**-109, 2.0**95])
def test_int8_refuses_a_bad_scale(scale: float) -> None:
    codec = Int8(4)
    data = bytearray(codec.encode(torch.arange(10.0)))
    data[4:8] = np.float32(scale).tobytes()
    with pytest.raises(CodecError, match="scale"):
        codec.decode(bytes(data), 10)


def test_int8_refuses_minus_128_anywhere() -> None:
    codec = Int8(4)
    good = codec.encode(torch.arange(10.0))
    for at in range(12, 22):
        with pytest.raises(CodecError, match="code"):
            codec.decode(good[:at] + b"\x80" + good[at + 1 :], 10)


def test_blocks_have_elements() -> None:
    with pytest.raises(ValueError, match="block"):
        Int8(0)
