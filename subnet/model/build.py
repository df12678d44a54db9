"""The model as a `transformers` Llama, and initial parameters that are bit-identical on every machine.

Not a trainer and never on the network: no hub access. `transformers` is imported inside the functions, because
its import takes seconds that a process without a model need not pay.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from subnet.config import ModelConfig
from subnet.model.presets import parameter_shapes

if TYPE_CHECKING:
    from transformers import LlamaConfig, LlamaForCausalLM

INIT_STD = 0.02
"""Standard deviation of the initial matrices."""
RMS_NORM_EPS = 1e-5

_INIT_DOMAIN = b"sn38/init/1"
_CHUNK = 2**22  # uniforms drawn at a time, so that a large tensor needs no second copy of itself
_RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")


def llama_config(cfg: ModelConfig, **extra: Any) -> LlamaConfig:
    """The `transformers` configuration of `cfg`; `extra` goes to LlamaConfig as it is."""
    from transformers import LlamaConfig

    fields: dict[str, Any] = {
        "vocab_size": cfg.vocab_size,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_hidden_layers": cfg.num_layers,
        "num_attention_heads": cfg.num_heads,
        "num_key_value_heads": cfg.num_kv_heads,
        "head_dim": cfg.head_dim,
        "max_position_embeddings": cfg.seq_len,
        "rope_theta": cfg.rope_theta,
        "rms_norm_eps": RMS_NORM_EPS,
        "attention_dropout": 0.0,
        "tie_word_embeddings": cfg.tie_embeddings,
    }
    return LlamaConfig(**fields, **extra)


def build_model(cfg: ModelConfig, device: str | torch.device = "cpu") -> LlamaForCausalLM:
    """An fp32 Llama on `device` with SDPA attention, no dropout and no key/value cache, in train mode.

    Its parameters are NaN until they are loaded (from `init_theta` or a peer's state): a forgotten load must not
    pass for a model. Nothing is drawn from torch's random state.
    """
    from transformers import LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    hf = llama_config(cfg, attn_implementation="sdpa", use_cache=False)
    with torch.device("meta"):  # the library's own random initialisation would take minutes at 1 B parameters
        model = LlamaForCausalLM(hf)
    model.to_empty(device=device)
    model.tie_weights()
    with torch.device(device):  # its frequencies are no parameters, so `to_empty` has lost them
        model.model.rotary_emb = LlamaRotaryEmbedding(hf)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    return model.train()


def init_theta(cfg: ModelConfig, seed: int) -> dict[str, torch.Tensor]:
    """Initial fp32 CPU parameters by name, sorted by name, with the same bits on every machine.

    Matrices are uniform with standard deviation `INIT_STD`, divided by sqrt(2 * num_layers) where they write to the
    residual stream (GPT-2's rule); norms are 1. Every tensor has a Philox stream of its own, keyed by seed and name;
    a uniform is a 24-bit integer and one fp32 multiply, so no rounding depends on the machine.
    """
    theta = {}
    for name, shape in parameter_shapes(cfg).items():
        if len(shape) == 1:
            theta[name] = torch.ones(shape)
            continue
        std = INIT_STD / math.sqrt(2 * cfg.num_layers) if name.endswith(_RESIDUAL_OUTPUTS) else INIT_STD
        theta[name] = torch.from_numpy(_uniform(seed, name, math.prod(shape), std).reshape(shape))
    return theta


def _uniform(seed: int, name: str, n: int, std: float) -> np.ndarray:
    """`n` fp32 values of U(-a, a) with a = sqrt(3) * std."""
    digest = hashlib.blake2b(seed.to_bytes(8, "little") + name.encode(), digest_size=16, person=_INIT_DOMAIN)
    stream = np.random.Philox(key=int.from_bytes(digest.digest(), "little"))
    scale = np.float32(math.sqrt(3) * std / 2**24)
    out = np.empty(n, dtype=np.float32)
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        words = stream.random_raw((stop - start + 1) // 2).astype("<u8").view("<u4")[: stop - start]
        odd = (words >> 8).astype(np.int32) * 2 + 1 - 2**24  # odd integers in (-2^24, 2^24): exact in fp32
        np.multiply(odd.astype(np.float32), scale, out=out[start:stop])
    return out
