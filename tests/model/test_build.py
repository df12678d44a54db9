"""The built model is the library's own Llama; its initial parameters have the same bits everywhere."""

import dataclasses
import hashlib
import math

import pytest
import torch

from subnet.config import ModelConfig
from subnet.model.build import INIT_STD, build_model, init_theta, llama_config
from subnet.model.presets import PRESETS, parameter_count, parameter_shapes

TINY = ModelConfig(preset="tiny", **PRESETS["tiny"])
SMALL = dataclasses.replace(
    TINY, preset="custom", hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2
)
UNTIED = dataclasses.replace(SMALL, tie_embeddings=False, rope_theta=500_000.0)

# What every machine must start from: any change here makes a new protocol version.
GOLDEN_TINY_SEED_38 = "1f0725461b5d9da17cefe624b5ab539bf5597e496da3dc963767210c86dd2509"


def digest(theta: dict[str, torch.Tensor]) -> str:
    out = hashlib.blake2b(digest_size=32)
    for name, tensor in theta.items():
        out.update(name.encode() + tensor.numpy().astype("<f4").tobytes())
    return out.hexdigest()


def test_initial_parameters_golden_hash() -> None:
    assert digest(init_theta(TINY, 38)) == GOLDEN_TINY_SEED_38


def test_initial_parameters_depend_on_seed_and_name() -> None:
    a, b = init_theta(SMALL, 1), init_theta(SMALL, 2)
    q, o = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"
    assert not torch.equal(a[q], b[q]) and not torch.equal(a[q], a[o])
    assert torch.equal(init_theta(SMALL, 1)[q], a[q])


def test_initial_distribution() -> None:
    theta = init_theta(TINY, 3)
    assert all(t.dtype == torch.float32 for t in theta.values())
    for name, tensor in theta.items():
        if tensor.ndim == 1:
            assert torch.equal(tensor, torch.ones_like(tensor))
            continue
        residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        std = INIT_STD / math.sqrt(2 * TINY.num_layers) if residual else INIT_STD
        assert tensor.std().item() == pytest.approx(std, rel=0.03)
        assert abs(tensor.mean().item()) < 4 * std / math.sqrt(tensor.numel())
        assert tensor.abs().max().item() <= math.sqrt(3) * std * (1 + 1e-6)


@pytest.mark.parametrize("cfg", [SMALL, UNTIED], ids=["tied", "untied"])
def test_built_model_has_the_declared_parameters(cfg: ModelConfig) -> None:
    model = build_model(cfg)
    named = dict(model.named_parameters())
    assert {name: tuple(p.shape) for name, p in sorted(named.items())} == parameter_shapes(cfg)
    assert sum(p.numel() for p in named.values()) == parameter_count(cfg)
    assert all(p.dtype == torch.float32 for p in named.values())
    assert model.training and model.config.use_cache is False and model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("cfg", [SMALL, UNTIED], ids=["tied", "untied"])
def test_built_model_computes_what_the_library_computes(cfg: ModelConfig) -> None:
    from transformers import LlamaForCausalLM

    theta = init_theta(cfg, 5)
    ours, theirs = build_model(cfg), LlamaForCausalLM(llama_config(cfg))
    for model in (ours, theirs):
        missing, unexpected = model.load_state_dict(theta, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}
    tokens = torch.randint(0, cfg.vocab_size, (2, cfg.seq_len), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(ours(tokens).logits, theirs.eval()(tokens).logits)


def test_a_forgotten_load_is_loud_and_no_random_state_is_used() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    model = build_model(SMALL)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.isnan().all() for p in model.parameters())


def test_initial_loss_is_that_of_a_uniform_guess() -> None:
    model = build_model(TINY)
    model.load_state_dict(init_theta(TINY, 38), strict=False)
    tokens = torch.randint(0, 258, (4, 128), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        loss = model(input_ids=tokens, labels=tokens).loss.item()
    assert loss == pytest.approx(math.log(264), abs=0.1)
