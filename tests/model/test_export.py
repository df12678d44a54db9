"""An exported folder loads in `transformers` as it is, and its tokenizer returns every byte."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.config import ModelConfig
from subnet.data.tokens import ByteTokenizer
from subnet.errors import UserError
from subnet.model.build import build_model, init_theta
from subnet.model.export import export, sample
from subnet.model.presets import PRESETS

TINY = ModelConfig(preset="tiny", **PRESETS["tiny"])
SMALL = dataclasses.replace(
    TINY, preset="custom", hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2, seq_len=16
)
UNTIED = dataclasses.replace(SMALL, tie_embeddings=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("export") / "model", SMALL, init_theta(SMALL, 1), ByteTokenizer())


@pytest.mark.parametrize("cfg", [SMALL, UNTIED], ids=["tied", "untied"])
def test_loads_with_the_same_logits(tmp_path: Path, cfg: ModelConfig) -> None:
    from transformers import AutoModelForCausalLM

    theta = init_theta(cfg, 1)
    flat = torch.cat([t.reshape(-1) for t in theta.values()])
    views, start = {}, 0
    for name, tensor in theta.items():  # as the neurons hold them: views into one flat vector
        views[name] = flat[start : start + tensor.numel()].view_as(tensor)
        start += tensor.numel()
    loaded = AutoModelForCausalLM.from_pretrained(export(tmp_path / "m", cfg, views, ByteTokenizer()))
    ours = build_model(cfg).eval()
    ours.load_state_dict(theta, strict=False)
    tokens = torch.arange(32).reshape(2, 16)
    with torch.inference_mode():
        assert torch.equal(loaded(tokens).logits, ours(tokens).logits)
    assert loaded.dtype == torch.float32
    assert (loaded.generation_config.bos_token_id, loaded.generation_config.eos_token_id) == (256, 257)


def test_generates_from_text(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    out = model.generate(**tokenizer("def ", return_tensors="pt"), max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(out[0]).startswith("def ")


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60))
def test_bytes_round_trip_in_transformers(folder: Path, text: str) -> None:
    tokenizer = hugging_face_tokenizer(folder)
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_every_byte_has_its_value_as_id(folder: Path) -> None:
    tokenizer = hugging_face_tokenizer(folder)
    text = "".join(map(chr, range(0x500))) + " \n\t\r\x0b.  ,'s 漢字 🙂"
    assert tokenizer(text)["input_ids"] == list(text.encode())
    assert sorted(tokenizer.get_vocab().values()) == list(range(258))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (256, 257)
    assert tokenizer.decode([256, 104, 105, 257], skip_special_tokens=True) == "hi"


def test_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "m"
    export(target, SMALL, init_theta(SMALL, 1), ByteTokenizer())
    (target / "stale.txt").write_text("old")
    export(target, SMALL, init_theta(SMALL, 2), ByteTokenizer())
    assert not (target / "stale.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="not an exported model"):
        export(mine, SMALL, init_theta(SMALL, 1), ByteTokenizer())
    with pytest.raises(UserError, match="cannot write"):
        export(mine / "thesis.txt" / "m", SMALL, init_theta(SMALL, 1), ByteTokenizer())
    assert (mine / "thesis.txt").read_text() == "precious"


def test_refuses_parameters_of_another_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        export(tmp_path / "m", UNTIED, init_theta(SMALL, 1), ByteTokenizer())


def test_sample_is_seeded_and_keeps_the_mode() -> None:
    model = build_model(SMALL)
    model.load_state_dict(init_theta(SMALL, 1), strict=False)
    text = sample(model, ByteTokenizer(), "x" * 40, 12, seed=3)
    assert text == sample(model, ByteTokenizer(), "x" * 40, 12, seed=3)
    assert text != sample(model, ByteTokenizer(), "x" * 40, 12, seed=4)
    assert model.training


_loaded: dict[Path, Any] = {}


def hugging_face_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    if folder not in _loaded:
        _loaded[folder] = AutoTokenizer.from_pretrained(folder)
    return _loaded[folder]
