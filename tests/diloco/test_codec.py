"""Int8 against a written-out reference, its error bound, and what strangers may send it."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.components import CodecConfig, ModelConfig
from subnet.diloco.codec import (
    Codec,
    CodecError,
    Fp32,
    Int8,
    check_finite,
    codec_of,
    decode_part,
    encode_part,
    encode_tree,
)
from subnet.diloco.layout import Layout
from subnet.model.presets import PRESETS, parameter_shapes

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


@st.composite
def vectors(draw: st.DrawFn) -> torch.Tensor:
    n = draw(st.integers(1, 900))
    rng = np.random.Generator(np.random.Philox(draw(st.integers(0, 2**32))))
    spread = draw(st.sampled_from([0, 3, 30]))
    x = rng.standard_normal(n) * 2.0 ** rng.integers(-spread, spread + 1, n)
    x[rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.0
    return torch.from_numpy(x.astype(np.float32))


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


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 50)), min_size=1, max_size=6),
    st.sampled_from([7, 16, 33, 64, 128]),
    st.sampled_from([8, 16, 256]),
    st.integers(0, 2**32),
)
def test_a_tree_has_the_bytes_of_its_leaves(shapes: list[tuple[int, int]], leaf: int, block: int, seed: int) -> None:
    layout = Layout.of([(str(i), (8 * a, b)) for i, (a, b) in enumerate(shapes)], leaf)
    x = torch.from_numpy(np.random.Generator(np.random.Philox(seed)).standard_normal(layout.numel).astype(np.float32))
    for codec in (Int8(block), Fp32()):
        leaves = encode_tree(codec, layout, x)
        assert leaves == [codec.encode(x[a:b]) for a, b in layout.leaves]
        whole = torch.cat([codec.decode(data, b - a) for data, (a, b) in zip(leaves, layout.leaves, strict=True)])
        assert torch.equal(decode_part(codec, layout, leaves, 0, layout.num_leaves), whole)
        for start, stop in layout.parts(3):
            a, b = layout.span(start, stop)
            assert torch.equal(decode_part(codec, layout, leaves[start:stop], start, stop), whole[a:b])
            assert encode_part(codec, layout, x[a:b], start, stop) == leaves[start:stop]


def test_windows_do_not_change_bytes(values: Callable[..., torch.Tensor]) -> None:
    """More elements than one window holds, whole and ragged leaves mixed."""
    layout = Layout.of([("a", (64, 9000)), ("b", (16,)), ("c", (8, 70_000)), ("d", (24,))], 65_536)
    x = values(layout.numel, 3)
    codec = Int8(256)
    leaves = encode_tree(codec, layout, x)
    assert leaves == [codec.encode(x[a:b]) for a, b in layout.leaves]
    whole = torch.cat([codec.decode(data, b - a) for data, (a, b) in zip(leaves, layout.leaves, strict=True)])
    assert torch.equal(decode_part(codec, layout, leaves, 0, layout.num_leaves), whole)


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


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_fp32_refuses_what_is_not_finite(bad: float) -> None:
    x = torch.ones(5)
    x[3] = bad
    with pytest.raises(CodecError, match="not finite"):
        Fp32().encode(x)
    with pytest.raises(CodecError, match="not finite"):
        Fp32().decode(x.numpy().tobytes(), 5)
    with pytest.raises(CodecError, match="not finite"):
        check_finite(x)


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


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 600), st.sampled_from([16, 256]))
def test_junk_is_refused_or_harmless(data: st.DataObject, n: int, block: int) -> None:
    for codec in (Int8(block), Fp32()):
        size = codec.encoded_size(n)
        junk = data.draw(st.binary(min_size=size, max_size=size) | st.binary(max_size=2 * size))
        try:
            y = codec.decode(junk, n)
        except CodecError:
            continue
        assert len(junk) == size and y.shape == (n,) and bool(torch.isfinite(y).all())
        if codec.name == "int8":
            assert float(y.abs().max()) <= BIGGEST


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


@pytest.mark.parametrize("codec", [Int8(16), Fp32()], ids=["int8", "fp32"])
def test_wrong_shapes(codec: Codec) -> None:
    layout = Layout.of([("w", (8, 5))], 5)
    leaves = encode_tree(codec, layout, torch.ones(40))
    for wrong in (leaves[:-1], [*leaves, leaves[0]], [*leaves[:-1], leaves[0][:-1]], [*leaves[:-1], leaves[0] + b"\0"]):
        with pytest.raises(CodecError, match="expected"):
            decode_part(codec, layout, wrong, 0, 8)
    for x in (torch.ones(39), torch.ones(40, dtype=torch.float64), torch.ones(40, 1)):
        with pytest.raises(CodecError, match="expected fp32"):
            encode_tree(codec, layout, x)
    with pytest.raises(CodecError):
        codec.encode(torch.empty(0))
    with pytest.raises(CodecError):
        codec.decode(b"", 0)


@pytest.mark.parametrize("preset", ["tiny", "10m"])
def test_payload_is_near_one_byte_a_parameter(preset: str) -> None:
    """Scales and a Merkle hash per leaf included; norm tensors of width 128 make leaves of 16 elements."""
    shapes = parameter_shapes(ModelConfig(preset=preset, **PRESETS[preset]))
    layout = Layout.of(shapes.items(), CodecConfig().leaf_size)
    leaves = encode_tree(codec_of(CodecConfig()), layout, torch.ones(layout.numel))
    assert min(b - a for a, b in layout.leaves) <= 40
    assert sum(len(leaf) + 32 for leaf in leaves) / layout.numel < 1.03


def test_codec_of() -> None:
    assert isinstance(codec_of(CodecConfig(name="fp32")), Fp32)
    int8 = codec_of(CodecConfig(block=32))
    assert isinstance(int8, Int8) and int8.block == 32
    with pytest.raises(ValueError, match="block"):
        Int8(0)
