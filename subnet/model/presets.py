"""Model presets by name, and exact parameter shapes and counts without allocating anything.

Not an architecture of our own: all are Llama (Touvron et al. 2023, arXiv 2302.13971) as `transformers` builds it.
Published shapes, so that results compare: "150m" and "1b" are OpenDiLoCo's (arXiv 2407.07852), "10b" INTELLECT-1's
(arXiv 2412.01152), "30b" and "70b" Llama 2's 34B and 70B (arXiv 2307.09288). "4b" is Llama 3.2's 3B with 38 layers for
its 28, "50b" Llama 2's 70B with 58 for its 80. docs/sizes.md has them in a table.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # subnet.config reads PRESETS, so the types come from it only for the checker
    from subnet.config import ModelConfig

BYTE_VOCAB = 264
"""256 byte values + bos + eos, padded up to a multiple of 8."""

PRESETS: dict[str, dict[str, int | float | bool]] = {
    "tiny": {
        "vocab_size": BYTE_VOCAB,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_layers": 3,
        "num_heads": 6,
        "num_kv_heads": 6,
        "seq_len": 128,
        "rope_theta": 10_000.0,
        "tie_embeddings": True,
    },
    "10m": {
        "vocab_size": BYTE_VOCAB,
        "hidden_size": 320,
        "intermediate_size": 864,
        "num_layers": 8,
        "num_heads": 5,
        "num_kv_heads": 5,
        "seq_len": 512,
        "rope_theta": 10_000.0,
        "tie_embeddings": True,
    },
    "150m": {
        "vocab_size": 32_000,
        "hidden_size": 1_024,
        "intermediate_size": 2_688,
        "num_layers": 12,
        "num_heads": 16,
        "num_kv_heads": 16,
        "seq_len": 1_024,
        "rope_theta": 10_000.0,
        "tie_embeddings": False,
    },
    "1b": {
        "vocab_size": 32_000,
        "hidden_size": 2_048,
        "intermediate_size": 5_632,
        "num_layers": 22,
        "num_heads": 32,
        "num_kv_heads": 4,
        "seq_len": 1_024,
        "rope_theta": 10_000.0,
        "tie_embeddings": False,
    },
    "4b": {
        "vocab_size": 32_000,
        "hidden_size": 3_072,
        "intermediate_size": 8_192,
        "num_layers": 38,
        "num_heads": 24,
        "num_kv_heads": 8,
        "seq_len": 4_096,
        "rope_theta": 10_000.0,
        "tie_embeddings": False,
    },
    "10b": {
        "vocab_size": 128_256,
        "hidden_size": 4_096,
        "intermediate_size": 14_336,
        "num_layers": 42,
        "num_heads": 32,
        "num_kv_heads": 8,
        "seq_len": 8_192,
        "rope_theta": 500_000.0,
        "tie_embeddings": False,
    },
    "30b": {
        "vocab_size": 32_000,
        "hidden_size": 8_192,
        "intermediate_size": 22_016,
        "num_layers": 48,
        "num_heads": 64,
        "num_kv_heads": 8,
        "seq_len": 4_096,
        "rope_theta": 10_000.0,
        "tie_embeddings": False,
    },
    "50b": {
        "vocab_size": 32_000,
        "hidden_size": 8_192,
        "intermediate_size": 28_672,
        "num_layers": 58,
        "num_heads": 64,
        "num_kv_heads": 8,
        "seq_len": 4_096,
        "rope_theta": 10_000.0,
        "tie_embeddings": False,
    },
    "70b": {
        "vocab_size": 32_000,
        "hidden_size": 8_192,
        "intermediate_size": 28_672,
        "num_layers": 80,
        "num_heads": 64,
        "num_kv_heads": 8,
        "seq_len": 4_096,
        "rope_theta": 10_000.0,
        "tie_embeddings": False,
    },
}
"""Preset name -> every field of `ModelConfig` but `preset` itself."""


def parameter_shapes(cfg: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its `transformers` name, sorted by name; a tied output matrix is not listed."""
    d, f = cfg.hidden_size, cfg.intermediate_size
    kv = d // cfg.num_heads * cfg.num_kv_heads
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (cfg.vocab_size, d), "model.norm.weight": (d,)}
    if not cfg.tie_embeddings:
        shapes["lm_head.weight"] = (cfg.vocab_size, d)
    for i in range(cfg.num_layers):
        layer = f"model.layers.{i}."
        shapes |= {
            layer + "input_layernorm.weight": (d,),
            layer + "post_attention_layernorm.weight": (d,),
            layer + "self_attn.q_proj.weight": (d, d),
            layer + "self_attn.k_proj.weight": (kv, d),
            layer + "self_attn.v_proj.weight": (kv, d),
            layer + "self_attn.o_proj.weight": (d, d),
            layer + "mlp.gate_proj.weight": (f, d),
            layer + "mlp.up_proj.weight": (f, d),
            layer + "mlp.down_proj.weight": (d, f),
        }
    return dict(sorted(shapes.items()))


def parameter_count(cfg: ModelConfig) -> int:
    """Exact number of trained parameters (a tied output matrix counts once)."""
    return sum(prod(shape) for shape in parameter_shapes(cfg).values())
