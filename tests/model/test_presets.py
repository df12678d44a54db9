"""Presets: sizes without allocation, shapes that equal ranks can share, and the rates of their runs."""

import re
from pathlib import Path

import pytest
import torch

from subnet.config import ModelConfig, load_run
from subnet.model.build import llama_config
from subnet.model.presets import PRESETS, parameter_count, parameter_shapes

COUNTS = {
    "tiny": 1_379_136,
    "10m": 10_002_240,
    "150m": 214_983_680,
    "1b": 1_100_048_384,
    "4b": 4_022_049_792,
    "10b": 10_211_381_248,
    "30b": 33_743_970_304,
    "50b": 50_152_251_392,
    "70b": 68_976_648_192,
}
LLAMA_2 = [(6.74e9, 3e-4), (13.02e9, 3e-4), (34e9, 1.5e-4), (68.98e9, 1.5e-4)]  # arXiv 2307.09288, table 1
BY_RULE = ["4b", "30b", "50b"]


def preset(name: str) -> ModelConfig:
    return ModelConfig(preset=name, **PRESETS[name])


def test_exact_counts() -> None:
    assert {name: parameter_count(preset(name)) for name in PRESETS} == COUNTS


@pytest.mark.parametrize("name", PRESETS)
def test_every_first_dimension_is_a_multiple_of_8(name: str) -> None:
    shapes = parameter_shapes(preset(name))
    assert list(shapes) == sorted(shapes)
    assert all(shape[0] % 8 == 0 for shape in shapes.values())


@pytest.mark.parametrize("name", PRESETS)
def test_shapes_are_those_of_transformers(name: str) -> None:
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(llama_config(preset(name)))
    assert {n: tuple(p.shape) for n, p in model.named_parameters()} == parameter_shapes(preset(name))


def test_the_table_on_paper() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sizes.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if re.match(r"\| (tiny|\d+[mb]) \|", row)}
    for name, count in COUNTS.items():
        c = preset(name)
        shape = c.num_layers, c.hidden_size, c.intermediate_size, c.num_heads, c.num_kv_heads, c.vocab_size, c.seq_len
        written = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", rows[name].split("|", 2)[2])]
        assert tuple(written[: 1 + len(shape)]) == (count, *shape)


@pytest.mark.parametrize("name", BY_RULE)
def test_batch_and_rate_follow_the_rule(name: str) -> None:
    run = load_run(name)
    rate = next(lr for size, lr in LLAMA_2 if size >= COUNTS[name])
    assert 16 * run.train.batch_size * run.model.seq_len == 2**22
    assert (run.train.lr, run.train.warmup_steps, run.train.decay_steps) == (rate, 2_000, 480_000)


@pytest.mark.parametrize(
    ("name", "tokens", "lr", "warmup", "inner_steps"),
    [("10b", 128 * 8_192, 7.5e-5, 1_000, 100), ("70b", 192 * 2_048, 1.17e-4, 1_500, 30)],
)
def test_published_runs_are_followed(name: str, tokens: int, lr: float, warmup: int, inner_steps: int) -> None:
    run = load_run(name)
    train = run.train
    assert train.batch_size * run.model.seq_len == tokens
    assert (train.lr, train.warmup_steps, train.inner_steps) == (lr, warmup, inner_steps)
