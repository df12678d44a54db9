"""Shards: every token in its place, the two splits apart, and a manifest that nothing damaged passes for."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.data import shards as reading
from subnet.data import writer as writing
from subnet.data.corpus import Corpus
from subnet.data.prepare import build_shards
from subnet.data.shards import Manifest, ShardFile, Shards
from subnet.data.tokens import ByteTokenizer
from subnet.errors import UserError

TEXTS = {"a.txt": bytes(range(256)) * 5, "b.txt": b"x" * 333, "c.txt": b"yz" * 400}
STREAM = np.concatenate([[256, *TEXTS[name], 257] for name in sorted(TEXTS)])


def build(folder: Path, shard_tokens: int | None = None) -> Path:
    source, target = folder / "text", folder / "shards"
    source.mkdir()
    target.mkdir()
    for name, raw in TEXTS.items():
        (source / name).write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        if shard_tokens:
            patch.setattr(writing, "SHARD_TOKENS", shard_tokens)
        build_shards(Corpus("t", source, tuple(sorted(TEXTS)), None), ByteTokenizer(), target)
    return target


def test_golden_manifest_hash(tmp_path: Path) -> None:
    """The same text must have this hash on every machine."""
    shards = Shards(build(tmp_path), 16, 0.02)
    assert shards.manifest_hash == "91de01d82a49712eea596242077a606bd485fdda8eabba15bdc6a9df9e9faee8"
    shards.verify()


@pytest.mark.parametrize("shard_tokens", [None, 1000, 160, 97])
@pytest.mark.parametrize("held_out", [0.5, 0.1, 0.3])
def test_every_sample_once_in_one_split(tmp_path: Path, shard_tokens: int | None, held_out: float) -> None:
    seq_len = 16
    shards = Shards(build(tmp_path, shard_tokens), seq_len, held_out)
    size = shard_tokens or len(STREAM)
    pieces = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]
    expected = [piece[i : i + seq_len] for piece in pieces for i in range(0, len(piece) - seq_len + 1, seq_len)]
    period = round(1 / held_out)
    train = shards.train(np.arange(shards.num_train))
    held = shards.held_out(np.arange(shards.num_held_out))
    assert train.dtype == held.dtype == torch.int64
    assert np.array_equal(held.numpy(), np.array(expected[period - 1 :: period]))
    rest = [sample for i, sample in enumerate(expected) if i % period != period - 1]
    assert np.array_equal(train.numpy(), np.array(rest))
    assert shards.num_samples == len(expected)


def test_rows_come_in_the_order_asked_for(tmp_path: Path) -> None:
    shards = Shards(build(tmp_path, 500), 16, 0.1)
    ids = np.array([7, 0, 7, shards.num_train - 1])
    assert torch.equal(shards.train(ids), shards.train(np.arange(shards.num_train))[torch.from_numpy(ids)])
    assert shards.train(ids[:0]).shape == (0, 16)


def test_ids_out_of_range_are_refused(tmp_path: Path) -> None:
    shards = Shards(build(tmp_path), 16, 0.1)
    for ids in ([-1], [shards.num_train], [[0]]):
        with pytest.raises(ValueError, match="indices below"):
            shards.train(np.array(ids))
    with pytest.raises(ValueError, match="indices below"):
        shards.held_out(np.array([shards.num_held_out]))


def test_damage_is_found(tmp_path: Path) -> None:
    folder = build(tmp_path)
    tokens = folder / "tokens-00000.bin"
    raw = bytearray(tokens.read_bytes())
    raw[1] = 200  # the first token, high byte: an id far above the vocabulary
    tokens.write_bytes(raw)
    shards = Shards(folder, 16, 0.1)
    with pytest.raises(UserError, match="damaged"):
        shards.verify()
    with pytest.raises(UserError, match="damaged"):
        shards.train(np.array([0]))
    tokens.write_bytes(raw[:-2])
    with pytest.raises(UserError, match=r"has \d+ bytes instead of \d+"):
        Shards(folder, 16, 0.1)
    tokens.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        Shards(folder, 16, 0.1)


def test_no_manifest_or_a_huge_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no token shards in .*: cannot read manifest\.json: No such file"):
        Shards(tmp_path, 16, 0.1)
    folder = build(tmp_path)
    monkeypatch.setattr(reading, "MAX_MANIFEST_BYTES", 10)
    with pytest.raises(UserError, match="larger than 10 bytes"):
        Shards(folder, 16, 0.1)


GOOD = Manifest("bytes", 258, "uint16", (ShardFile("tokens-00000.bin", 5, "a" * 64), ShardFile("b.bin", 6, "b" * 64)))


def test_manifest_round_trip_and_every_field_is_hashed() -> None:
    assert Manifest.from_bytes(GOOD.to_bytes()) == GOOD
    others = [
        Manifest("c" * 64, 258, "uint16", GOOD.shards),
        Manifest("bytes", 259, "uint16", GOOD.shards),
        Manifest("bytes", 258, "uint32", GOOD.shards),
        Manifest("bytes", 258, "uint16", GOOD.shards[::-1]),
        Manifest("bytes", 258, "uint16", GOOD.shards[:1]),
        Manifest("bytes", 258, "uint16", (ShardFile("tokens-00000.bin", 6, "a" * 64), GOOD.shards[1])),
    ]
    assert len({m.hash() for m in [GOOD, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/b.bin",
        "..",
        "",
        "x.py",
        ".bin",
        "a\0.bin",
        3,
        None,
        ["a.bin"],
        "tokens-00000.bin",
    ],
)
def test_a_manifest_cannot_name_files_elsewhere(path: object) -> None:
    table = json.loads(GOOD.to_bytes())
    table["shards"][1]["file"] = path
    with pytest.raises(ValueError):
        Manifest.from_bytes(json.dumps(table, sort_keys=True, separators=(",", ":")).encode() + b"\n")


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_mutated_manifest_is_itself_or_refused(data: st.DataObject) -> None:
    raw = bytearray(GOOD.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        manifest = Manifest.from_bytes(bytes(raw))
    except ValueError:
        return
    assert manifest.to_bytes() == raw


@settings(max_examples=40, deadline=None)
@given(raw=st.binary(max_size=60) | st.sampled_from([b"[]", b"{}", b"null", b'{"shards": 3}', b"[" * 30_000]))
def test_junk_is_no_manifest(raw: bytes) -> None:
    with pytest.raises(ValueError):
        Manifest.from_bytes(raw)
