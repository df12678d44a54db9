"""Tokenizers: bytes are themselves; a `tokenizers` file is read, or refused in one line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.data.tokens import ByteTokenizer, JsonTokenizer, load_tokenizer
from subnet.errors import UserError


def save_bpe(path: Path, special: list[str]) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(["the cat sat on the mat, the dog on the log"] * 20, trainer)
    raw.save(str(path))
    return path


@settings(max_examples=40, deadline=None)
@given(raw=st.binary(max_size=40), text=st.text(max_size=40))
def test_bytes_are_their_own_ids(raw: bytes, text: str) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode(raw).tolist() == list(raw) and tokenizer.encode(raw).dtype == np.uint16
    assert tokenizer.decode([256, *tokenizer.encode(text), 257]) == text


def test_bytes_cut_within_a_character() -> None:
    assert ByteTokenizer().decode("漢".encode()[:2]) == "\ufffd"


def test_json_tokenizer(tmp_path: Path) -> None:
    tokenizer = load_tokenizer("t.json", save_bpe(tmp_path / "t.json", ["<s>", "</s>"]).parent)
    ids = tokenizer.encode("the cat sat")
    assert ids.dtype == np.uint16 and len(ids) < len("the cat sat") and ids.max() < tokenizer.vocab_size
    assert tokenizer.decode([*ids, tokenizer.eos]) == "the cat sat"
    assert tokenizer.encode(b"the cat sat").tolist() == ids.tolist()
    assert (tokenizer.bos, tokenizer.eos) == (0, 1)
    assert len(tokenizer.identity) == 64


def test_json_tokenizer_for_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = JsonTokenizer(save_bpe(tmp_path / "t.json", ["<|endoftext|>"]))
    assert tokenizer.bos is None
    tokenizer.to_hugging_face(32).save_pretrained(tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded("the cat")["input_ids"] == tokenizer.encode("the cat").tolist()
    assert loaded.eos_token_id == tokenizer.eos


def test_bad_tokenizer_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data path is set"):
        load_tokenizer("t.json", None)
    with pytest.raises(UserError, match=r"cannot read the tokenizer .*t\.json: No such file"):
        load_tokenizer("t.json", tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UserError, match="is not a tokenizer of the `tokenizers` library"):
        load_tokenizer("bad.json", tmp_path)
    with pytest.raises(UserError, match="has no end-of-text token"):
        JsonTokenizer(save_bpe(tmp_path / "none.json", []))
