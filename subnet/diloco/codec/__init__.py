"""Codecs: how a run of leaves becomes bytes and back, one byte string per leaf.

Not error feedback (`feedback` keeps what is lost) and not transport. Every format, its arithmetic and its test vectors
are in docs/codecs.md; an auditor on another machine gets the same bytes and the same floats.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from subnet.config import CodecConfig
from subnet.diloco.codec.base import Codec, CodecError, byte_view, check_finite, windows
from subnet.diloco.codec.int4 import Int4
from subnet.diloco.codec.int8 import Int8
from subnet.diloco.codec.plain import Fp16, Fp32
from subnet.diloco.codec.sparse import Sparse
from subnet.diloco.layout import Layout

__all__ = [
    "Codec",
    "CodecError",
    "Fp16",
    "Fp32",
    "Int4",
    "Int8",
    "Sparse",
    "byte_view",
    "check_finite",
    "codec_of",
    "decode_part",
    "encode_part",
    "encode_tree",
    "reduced_codec_of",
    "windows",
]


def codec_of(cfg: CodecConfig) -> Codec:
    """The codec of a run's contributions."""
    if cfg.name == "sparse":
        return Sparse(cfg.top_k, cfg.chunk)
    if cfg.name == "int8":
        return Int8(cfg.block)
    if cfg.name == "int4":
        return Int4(cfg.block)
    return Fp16() if cfg.name == "fp16" else Fp32()


def reduced_codec_of(cfg: CodecConfig) -> Codec:
    """The codec of a run's reduced parts."""
    return Sparse(cfg.reduced_top_k, cfg.chunk) if cfg.name == "sparse" else codec_of(cfg)


def encode_part(codec: Codec, layout: Layout, x: Tensor, start: int, stop: int) -> list[bytes]:
    """Encode the leaves `[start, stop)` whose values are `x`, fp32 of just those leaves. Raises CodecError."""
    return codec.encode_leaves(x, layout.bounds[start : stop + 1])


def encode_tree(codec: Codec, layout: Layout, x: Tensor) -> list[bytes]:
    """Encode every leaf of the flat vector `x`, fp32 `[numel]`. Raises CodecError."""
    return encode_part(codec, layout, x, 0, layout.num_leaves)


def decode_part(codec: Codec, layout: Layout, leaves: Sequence[bytes], start: int, stop: int) -> Tensor:
    """Decode `leaves`, those of `[start, stop)` only, to fp32 of just those leaves. Raises CodecError."""
    return codec.decode_leaves(leaves, layout.bounds[start : stop + 1])
