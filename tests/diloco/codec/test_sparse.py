"""Sparse against a written-out reference, its choice among equals, and that no leaf but the canonical one decodes."""

import math
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.components import CodecConfig, ModelConfig
from subnet.diloco.codec import CodecError, Sparse, codec_of, encode_tree, reduced_codec_of
from subnet.diloco.codec.select import largest
from subnet.diloco.layout import Layout
from subnet.model.presets import PRESETS, parameter_shapes

from .conftest import vectors

TINY, LARGEST = 2.0**-90, 2.0**100
INFINITY = 0xFF << 23


def reference_split(magnitudes: list[float]) -> tuple[int, list[bool]]:
    """Header, and who is high, of one chunk's kept magnitudes in falling order."""
    top = magnitudes[0]
    if top < TINY:
        return 0, [False] * len(magnitudes)
    unit = 2.0 ** (math.frexp(top)[1] - 12)
    whole = [int(m / unit) for m in magnitudes]
    gains = []
    for i in range(1, len(whole)):
        excess = float(sum(whole[:i]) * len(whole) - sum(whole) * i)
        gains.append(excess * excess * (1.0 / (i * (len(whole) - i))))
    last = whole[gains.index(max(gains))] if gains else whole[0]
    zeros = magnitudes[-1] == 0
    high = [m > 0 if zeros else q >= last for m, q in zip(magnitudes, whole, strict=True)]
    mean = np.float32(sum(q for q, h in zip(whole, high, strict=True) if h) / sum(high))
    # The magnitude with four bits of mantissa, half up.
    fraction, exponent = math.frexp(float(mean))
    steps = math.floor(fraction * 32 + 0.5)
    value = min(max(steps * 2.0 ** (exponent - 5) * unit, TINY), LARGEST)
    fraction, exponent = math.frexp(value)
    code = (exponent - 1 + 90) * 16 + int(fraction * 32) - 16 + 1
    low = [q for q, h in zip(whole, high, strict=True) if not h]
    ratio = 0 if zeros or not low else min(max(round(sum(low) / len(low) / (value / unit / 16)), 1), 15)
    return code << 4 | ratio, high


def reference_sparse(x: np.ndarray, top_k: int, chunk: int) -> bytes:
    """The format, one chunk at a time, bits as characters."""
    low_bits = max(0, (chunk * 7 // (top_k * 10)).bit_length() - 1)
    headers, gaps, highs, signs = b"", [], "", ""
    for start in range(0, len(x), chunk):
        part = [float(v) for v in x[start : start + chunk]]
        kept = -(-top_k * len(part) // chunk)
        part = part if max(map(abs, part)) >= TINY else [0.0] * len(part)
        ranked = sorted(range(len(part)), key=lambda i: (-abs(part[i]), i))[:kept]
        header, high = reference_split([abs(part[i]) for i in ranked])
        headers += header.to_bytes(2, "little")
        before = -1
        for place, is_high in sorted(zip(ranked, high, strict=True)):
            gaps.append(place - before - 1)
            highs += str(int(is_high))
            signs += str(int(part[place] < 0))
            before = place
    bits = "".join("0" * (gap >> low_bits) + "1" for gap in gaps)
    for gap, high_bit, sign in reversed(list(zip(gaps, highs, signs, strict=True))):
        bits = "".join(str(gap >> bit & 1) for bit in range(low_bits)) + high_bit + sign + bits
    return headers + int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")


@settings(max_examples=100, deadline=None)
@given(vectors(600), st.sampled_from([(1, 64), (2, 5), (64, 64), (7, 100), (30, 256), (8, 512)]))
def test_sparse_is_the_reference_and_canonical(x: torch.Tensor, shape: tuple[int, int]) -> None:
    codec, n = Sparse(*shape), x.numel()
    data = codec.encode(x)
    assert data == reference_sparse(x.numpy(), *shape)
    assert len(data) <= codec.max_encoded_size(n)
    y = codec.decode(data, n)
    assert codec.encode(y) == data
    sent = y != 0
    assert not (y[sent] * x[sent] < 0).any()  # no sign is wrong
    for a, b in zip(x.split(shape[1]), y.split(shape[1]), strict=True):
        kept = -(-shape[0] * len(a) // shape[1])
        assert int((b != 0).sum()) <= kept
        if float(a.abs().max()) >= TINY:
            assert float((a - b).double().norm()) <= float(a.double().norm())
            assert 0 < float(b.abs().max()) <= float(a.abs().max()) * (1 + 2.0**-4)


@settings(max_examples=60, deadline=None)
@given(vectors(300), st.sampled_from([(2, 5), (7, 100), (30, 256)]), st.data())
def test_only_the_canonical_leaf_decodes(x: torch.Tensor, shape: tuple[int, int], data: st.DataObject) -> None:
    """Whatever bytes are changed: what still decodes is what its values encode to."""
    codec, n = Sparse(*shape), x.numel()
    leaf = bytearray(codec.encode(x))
    for _ in range(data.draw(st.integers(1, 3))):
        leaf[data.draw(st.integers(0, len(leaf) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        y = codec.decode(bytes(leaf), n)
    except CodecError:
        return
    assert codec.encode(y) == leaf


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5), st.integers(1, 300), st.data(), st.integers(0, 2**32))
def test_among_equals_the_first_are_the_largest(rows: int, columns: int, data: st.DataObject, seed: int) -> None:
    k = data.draw(st.integers(1, columns))
    kinds = data.draw(st.sampled_from([1, 2, 5, 2**24, INFINITY + 1]))
    bits = np.random.Generator(np.random.Philox(seed)).integers(0, kinds, (rows, columns)).astype(np.int32)
    signs = np.random.Generator(np.random.Philox(seed + 1)).integers(0, 2, (rows, columns)).astype(np.int32)
    signed = bits | signs << 31
    found = largest(torch.from_numpy(signed).view(torch.float32), k)
    ranked = np.array([sorted(range(columns), key=lambda c: (-row[c], c))[:k] for row in bits.astype(np.int64)])
    assert (found.ranked_MK == np.take_along_axis(bits, ranked, axis=1)).all()
    assert (found.columns_MK == np.sort(ranked, axis=1)).all()
    assert (found.bits_MK == np.take_along_axis(signed, found.columns_MK, axis=1)).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.data(), st.integers(0, 2**32))
def test_a_nan_is_ranked_first(columns: int, data: st.DataObject, seed: int) -> None:
    rng = np.random.Generator(np.random.Philox(seed))
    bits = rng.integers(0, INFINITY + 1, (2, columns)).astype(np.int32)
    which = rng.choice(columns, data.draw(st.integers(1, columns)), replace=False)
    bits[1, which] = rng.integers(INFINITY + 1, 2**31, len(which))
    found = largest(torch.from_numpy(bits).view(torch.float32), data.draw(st.integers(1, columns)))
    assert found.ranked_MK[0, 0] <= INFINITY < found.ranked_MK[1, 0]


def test_golden_bytes(values: Callable[..., torch.Tensor], threads: Callable[[int], None]) -> None:
    x = values(300_001, 1)
    for count in (1, 2):
        threads(count)
        data = Sparse(64, 4096).encode(x)
        assert blake2b(data, digest_size=16).hexdigest() == "c06d1f7ea851afad0352fec2a49738ec"
        decoded = Sparse(64, 4096).decode(data, x.numel())
        assert blake2b(decoded.numpy().tobytes(), digest_size=16).hexdigest() == "da53fb7689f3ac8cd5b71d758edce90a"


def test_a_machine_without_denormals_makes_the_same_bytes(values: Callable[..., torch.Tensor]) -> None:
    """A chunk of numbers down to the least denormal, beside one that has a large one as well."""
    x = values(8192, 2) * 2.0**-120
    x[::3] *= 2.0**-26
    x[5000] = 1.0
    codec = Sparse(64, 4096)
    plain = codec.encode(x)
    torch.set_flush_denormal(True)
    try:
        assert codec.encode(x) == plain
    finally:
        torch.set_flush_denormal(False)
    assert plain == reference_sparse(x.numpy(), 64, 4096)


def test_the_size_bound_is_met_and_tight() -> None:
    """Everything kept at the end of its chunk, or one place there: no leaf needs more zeros."""
    for codec in (Sparse(64, 4096), Sparse(7, 100), Sparse(1, 64)):
        for n in (codec.chunk, codec.chunk * 3 + 5, 9):
            x = torch.zeros(n)
            for start in range(0, n, codec.chunk):
                part = x[start : start + codec.chunk]
                part[len(part) - -(-codec.top_k * len(part) // codec.chunk) :] = 1.0
            assert len(codec.encode(x)) == codec.max_encoded_size(n)


def test_payload_of_random_places(values: Callable[..., torch.Tensor]) -> None:
    """Bits per kept value with headers and a root, in leaves of 65,536 and in the demo's few thousand elements."""
    codec = codec_of(CodecConfig(name="sparse"))
    assert isinstance(codec, Sparse)
    x = values(2**20, 5)
    kept = 2**20 // 64
    leaves = codec.encode_leaves(x, range(0, 2**20 + 1, 65_536))
    assert (sum(map(len, leaves)) + 32) * 8 / kept < 9.9
    layout = Layout.of(parameter_shapes(ModelConfig(preset="tiny", **PRESETS["tiny"])).items(), 65_536)
    leaves = encode_tree(codec, layout, values(layout.numel, 6))
    assert layout.numel * 4 / (sum(map(len, leaves)) + 32) > 200


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (0, b"\xff\xff", "header"),  # above 2^100
        (0, b"\x00\x00", "header"),  # zeros, of which some are high
        (0, b"\x0f\x00", "header"),
        (2, b"\xff", "place|gaps|bytes"),
    ],
)
def test_what_is_refused(at: int, value: bytes, why: str) -> None:
    leaf = bytearray(Sparse(4, 64).encode(torch.arange(64.0)))
    leaf[at : at + len(value)] = value
    with pytest.raises(CodecError, match=why):
        Sparse(4, 64).decode(bytes(leaf), 64)


def test_a_leaf_from_hell_costs_little() -> None:
    """Nothing a leaf claims makes the decoder allocate: sizes follow from the number of elements alone."""
    codec = Sparse(64, 4096)
    for leaf in (b"", b"\xff" * codec.max_encoded_size(65_536), bytes(10**7), b"\xff" * 10**7):
        with pytest.raises(CodecError):
            codec.decode(leaf, 65_536)


def test_shapes() -> None:
    codec, reduced = codec_of(CodecConfig(name="sparse")), reduced_codec_of(CodecConfig(name="sparse"))
    assert isinstance(codec, Sparse) and (codec.top_k, codec.chunk) == (64, 4096)
    assert isinstance(reduced, Sparse) and (reduced.top_k, reduced.chunk) == (256, 4096)
    for top_k, chunk in ((0, 64), (65, 64), (1, 2**16 + 1)):
        with pytest.raises(ValueError, match="top_k"):
            Sparse(top_k, chunk)
