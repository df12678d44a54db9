"""What holds for every codec: parts are leaves put together, and strangers' bytes are refused or harmless."""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.components import CodecConfig, ModelConfig
from subnet.diloco.codec import (
    Codec,
    CodecError,
    Fp16,
    Fp32,
    Int4,
    Int8,
    check_finite,
    codec_of,
    decode_part,
    encode_part,
    encode_tree,
    reduced_codec_of,
)
from subnet.diloco.layout import Layout
from subnet.model.presets import PRESETS, parameter_shapes

from .conftest import DEVICES, codecs, vectors

EACH = pytest.mark.parametrize("codec", codecs(), ids=lambda codec: codec.name)


@EACH
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 50)), min_size=1, max_size=6),
    st.sampled_from([7, 16, 33, 64, 128]),
    st.integers(0, 2**32),
)
def test_a_tree_has_the_bytes_of_its_leaves(codec: Codec, shapes: list[tuple[int, int]], leaf: int, seed: int) -> None:
    layout = Layout.of([(str(i), (8 * a, b)) for i, (a, b) in enumerate(shapes)], leaf)
    x = torch.from_numpy(np.random.Generator(np.random.Philox(seed)).standard_normal(layout.numel).astype(np.float32))
    leaves = encode_tree(codec, layout, x)
    assert leaves == [codec.encode(x[a:b]) for a, b in layout.leaves]
    whole = torch.cat([codec.decode(data, b - a) for data, (a, b) in zip(leaves, layout.leaves, strict=True)])
    assert torch.equal(decode_part(codec, layout, leaves, 0, layout.num_leaves), whole)
    for start, stop in layout.parts(3):
        a, b = layout.span(start, stop)
        assert torch.equal(decode_part(codec, layout, leaves[start:stop], start, stop), whole[a:b])
        assert encode_part(codec, layout, x[a:b], start, stop) == leaves[start:stop]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "cfg", [CodecConfig(name=name) for name in ("fp32", "fp16", "int8", "int4", "sparse")], ids=lambda c: c.name
)
def test_neither_windows_nor_threads_nor_devices_change_bytes(
    values: Callable[..., torch.Tensor], threads: Callable[[int], None], cfg: CodecConfig, device: str
) -> None:
    """More elements than one window holds, whole and ragged leaves mixed."""
    layout = Layout.of([("a", (64, 9000)), ("b", (16,)), ("c", (8, 170_000)), ("d", (24,))], 65_536)
    x, codec = values(layout.numel, 3), codec_of(cfg)
    threads(2)
    leaves = encode_tree(codec, layout, x.to(device))
    threads(1)
    assert leaves == [codec.encode(x[a:b]) for a, b in layout.leaves]
    whole = torch.cat([codec.decode(data, b - a) for data, (a, b) in zip(leaves, layout.leaves, strict=True)])
    assert torch.equal(decode_part(codec, layout, leaves, 0, layout.num_leaves), whole)


@EACH
@settings(max_examples=40, deadline=None)
@given(vectors(300))
def test_what_was_decoded_is_finite_and_within_the_size(codec: Codec, x: torch.Tensor) -> None:
    data = codec.encode(x)
    assert 0 < len(data) <= codec.max_encoded_size(x.numel())
    y = codec.decode(data, x.numel())
    assert y.dtype == torch.float32 and y.shape == x.shape
    check_finite(y)
    again = codec.encode(y)
    assert len(again) <= codec.max_encoded_size(x.numel())


@EACH
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 200))
def test_junk_is_refused_or_harmless(codec: Codec, data: st.DataObject, n: int) -> None:
    size = codec.max_encoded_size(n)
    junk = data.draw(st.binary(min_size=size, max_size=size) | st.binary(max_size=2 * size))
    try:
        y = codec.decode(junk, n)
    except CodecError:
        return
    assert len(junk) <= size and y.shape == (n,)
    check_finite(y)
    codec.encode(y)


@EACH
@settings(max_examples=40, deadline=None)
@given(vectors(200), st.data())
def test_damaged_leaves(codec: Codec, x: torch.Tensor, data: st.DataObject) -> None:
    """Cut or extended: refused. A flipped bit: refused, or other finite values."""
    good, n = codec.encode(x), x.numel()
    for bad in (good[: data.draw(st.integers(0, len(good) - 1))], good + data.draw(st.binary(min_size=1, max_size=9))):
        with pytest.raises(CodecError):
            codec.decode(bad, n)
    flipped = bytearray(good)
    flipped[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(CodecError):
        check_finite(codec.decode(bytes(flipped), n))


@EACH
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("at", [0, 255, 256, 299])
def test_what_is_not_finite_is_not_encoded(codec: Codec, bad: float, at: int) -> None:
    x = torch.ones(300)
    x[at] = bad
    with pytest.raises(CodecError, match="not finite"):
        codec.encode(x)
    with pytest.raises(CodecError, match="not finite"):
        check_finite(x)


@EACH
def test_zeros_stay_zero_and_denormals_do_no_harm(codec: Codec) -> None:
    assert not codec.decode(codec.encode(torch.zeros(300)), 300).any()
    x = torch.cat([torch.full((300,), 1e-40), torch.zeros(2)])
    y = codec.decode(codec.encode(x), 302)
    assert float(y.abs().max()) <= 1.1e-40 and not y[300:].any()


@EACH
def test_wrong_shapes(codec: Codec) -> None:
    layout = Layout.of([("w", (8, 5))], 5)
    leaves = encode_tree(codec, layout, torch.ones(40))
    for wrong in (leaves[:-1], [*leaves, leaves[0]]):
        with pytest.raises(CodecError, match="expected"):
            decode_part(codec, layout, wrong, 0, 8)
    for wrong in ([*leaves[:-1], leaves[0][:-1]], [*leaves[:-1], leaves[0] + b"\0"], [b"", *leaves[1:]]):
        with pytest.raises(CodecError):
            decode_part(codec, layout, wrong, 0, 8)
    for x in (torch.ones(39), torch.ones(40, dtype=torch.float64), torch.ones(40, 1)):
        with pytest.raises(CodecError, match="expected fp32"):
            encode_tree(codec, layout, x)
    with pytest.raises(CodecError):
        codec.encode(torch.empty(0))
    with pytest.raises(CodecError):
        codec.decode(b"", 0)


@EACH
def test_the_mean_of_whatever_decodes_can_be_encoded(codec: Codec) -> None:
    """A reducer must not fail on extreme but valid contributions, even when its rounding goes up."""
    if codec.name == "fp32":
        return  # Its range is fp32's own.
    x = torch.full((256,), 2.0**100.999)
    x[1::2] *= -1
    y = codec.decode(codec.encode(x), 256)
    again = codec.decode(codec.encode(y * (1 + 2.0**-12)), 256)
    assert torch.equal(again, y) and float(y.abs().max()) >= 65_504.0


@pytest.mark.parametrize(("name", "limit"), [("int8", 8.24), ("int4", 4.15)])
@pytest.mark.parametrize("preset", ["tiny", "10m"])
def test_payload(preset: str, name: str, limit: float) -> None:
    """Bits per parameter, headers and a Merkle hash per leaf included; norms make leaves of few elements."""
    shapes = parameter_shapes(ModelConfig(preset=preset, **PRESETS[preset]))
    cfg = CodecConfig(name=name, block=128 if name == "int4" else 256)
    layout = Layout.of(shapes.items(), cfg.leaf_size)
    leaves = encode_tree(codec_of(cfg), layout, torch.ones(layout.numel))
    assert min(b - a for a, b in layout.leaves) <= 40
    assert sum(len(leaf) + 32 for leaf in leaves) * 8 / layout.numel < limit


def test_codec_of() -> None:
    for name, kind in (("fp32", Fp32), ("fp16", Fp16), ("int8", Int8), ("int4", Int4)):
        codec = codec_of(CodecConfig(name=name, block=32))
        assert type(codec) is kind and codec.name == name
        assert getattr(codec, "block", 32) == 32
        assert type(reduced_codec_of(CodecConfig(name=name))) is kind
