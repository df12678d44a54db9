"""Preparing data: once, whole or not at all, also when many processes start together or the disk is full."""

import dataclasses
import multiprocessing
import tempfile
from pathlib import Path

import numpy as np
import pytest

from subnet.config import DataConfig
from subnet.data import prepare as building
from subnet.data.prepare import prepare
from subnet.errors import UserError

STDLIB = DataConfig(source="stdlib")


def text_folder(root: Path, name: str = "text") -> DataConfig:
    folder = root / name
    (folder / "sub").mkdir(parents=True)
    for i in range(40):
        (folder / f"{i}.txt").write_text(f"document {i}\n" * 100)
        (folder / "sub" / f"{i}.md").write_text(f"# title {i}\n" * 50)
    return DataConfig(source="folder", path=str(folder))


def prepared_hash(arguments: tuple[DataConfig, Path]) -> tuple[str, int]:
    shards = prepare(*arguments, seq_len=32)
    return shards.manifest_hash, shards.num_train


def test_same_text_elsewhere_has_the_same_manifest(tmp_path: Path) -> None:
    here, there = text_folder(tmp_path, "here"), text_folder(tmp_path, "there")
    a, b = prepare(here, tmp_path / "cache-a", 32), prepare(there, tmp_path / "cache-b", 32)
    assert a.manifest_hash == b.manifest_hash
    (tmp_path / "there" / "0.txt").write_text("changed\n" * 100)
    assert prepare(there, tmp_path / "cache-b", 32).manifest_hash != b.manifest_hash


def test_second_use_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = text_folder(tmp_path), []
    first = prepare(data, tmp_path / "cache", 32, lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] and calls == sorted(calls)
    monkeypatch.delattr(building, "build_shards")
    assert prepare(data, tmp_path / "cache", 32).manifest_hash == first.manifest_hash
    assert prepare(data, tmp_path / "cache", 16).num_samples > first.num_samples


def test_standard_library_corpus(tmp_path: Path) -> None:
    shards = prepare(STDLIB, tmp_path, 128)
    assert shards.num_train > 40_000 and shards.vocab_size == 258
    text = bytes(int(t) for t in shards.train(np.arange(2000)).reshape(-1) if t < 256)
    assert b"import " in text and b"def " in text


def test_eight_processes_at_once(tmp_path: Path) -> None:
    data = text_folder(tmp_path)
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        found = pool.map_async(prepared_hash, [(data, tmp_path / "cache")] * 8, chunksize=1).get(timeout=120)
    assert len(set(found)) == 1
    left = sorted(p.name for p in (tmp_path / "cache").iterdir())
    assert len(left) == 2 and left[0].endswith(".lock") and left[1].startswith("shards-")


def test_leftovers_of_a_crash_are_removed_and_never_read(tmp_path: Path) -> None:
    data, cache = text_folder(tmp_path), tmp_path / "cache"
    first = prepare(data, cache, 32)
    name = first.folder.name
    (first.folder / "manifest.json").unlink()  # as if the files had been there without their manifest
    half = cache / f".{name}.building-xyz"
    half.mkdir()
    (half / "tokens-00000.bin").write_bytes(b"half")
    assert prepare(data, cache, 32).manifest_hash == first.manifest_hash
    assert sorted(p.name for p in cache.iterdir()) == [f".{name}.lock", name]


def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, cache, real = text_folder(tmp_path), tmp_path / "cache", tempfile.mkdtemp

    def on_a_full_disk(prefix: str, dir: Path) -> str:
        staging = real(prefix=prefix, dir=dir)
        Path(staging, "tokens-00000.bin").symlink_to("/dev/full")  # every write fails with ENOSPC
        return staging

    monkeypatch.setattr(building.tempfile, "mkdtemp", on_a_full_disk)
    with pytest.raises(UserError, match=r"No space left on device; free some space or choose another --home$"):
        prepare(data, cache, 32)
    assert [p.name for p in cache.iterdir() if not p.name.endswith(".lock")] == []
    monkeypatch.undo()
    assert prepare(data, cache, 32).num_train > 0


def test_damaged_cache_is_found_at_start(tmp_path: Path) -> None:
    data, cache = text_folder(tmp_path), tmp_path / "cache"
    tokens = prepare(data, cache, 32).folder / "tokens-00000.bin"
    raw = bytearray(tokens.read_bytes())
    raw[1000] ^= 1
    tokens.write_bytes(raw)
    with pytest.raises(UserError, match=r"damaged; delete .*cache/shards-\w+ and start again"):
        prepare(data, cache, 32)


def test_shards_made_elsewhere(tmp_path: Path) -> None:
    built = prepare(text_folder(tmp_path), tmp_path / "cache", 32)
    found = prepare(DataConfig(source="shards", path=str(built.folder)), tmp_path / "none", 32)
    assert found.manifest_hash == built.manifest_hash and not (tmp_path / "none").exists()


def test_what_a_user_can_get_wrong(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(UserError, match=r"data\.source is folder, but no folder is set"):
        prepare(DataConfig(source="folder"), cache, 32)
    with pytest.raises(UserError, match=r"data\.source is shards, but no folder is set"):
        prepare(DataConfig(source="shards"), cache, 32)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "a.txt").write_text("short")
    small = DataConfig(source="folder", path=str(tmp_path / "small"))
    with pytest.raises(
        UserError, match=r"the data has 0 samples of 32 tokens; at least 1024 are needed \(32,768 tokens\)"
    ):
        prepare(small, cache, 32)
    (tmp_path / "small" / "a.txt").write_text("")
    with pytest.raises(UserError, match="nothing but empty files"):
        prepare(small, cache, 32)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot build the token shards"):
        prepare(text_folder(tmp_path), tmp_path / "file", 32)
    with pytest.raises(UserError, match="no data path is set"):
        prepare(dataclasses.replace(STDLIB, tokenizer="t.json"), cache, 32)


def test_a_lock_held_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "LOCK_DEADLINE_S", 0.0)
    lock = tmp_path / "x.lock"
    with building._locked(lock), pytest.raises(UserError, match="another process has held"), building._locked(lock):
        pass
    with building._locked(lock):  # released
        pass
