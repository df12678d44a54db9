"""The chain file: what comes back, and what is refused rather than overwritten."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.localnet.errors import LocalnetError
from subnet.localnet.state import State
from subnet.localnet.store import FILE_NAME, Store, StoredBlock, pack_journal, unpack_journal


def block(number: int) -> StoredBlock:
    return StoredBlock(number, number.to_bytes(32, "big"), b"header%d" % number, (b"one", b"", b"three" * number))


def filled(folder: Path, blocks: int = 3) -> State:
    """A store of some blocks that each change one key, closed; and the state it should hold."""
    store, state = Store(folder), State()
    state.put(b"k" * 32, b"0")
    state.seal(0)
    store.create(block(0), state, {"chain": b"test"})
    for number in range(1, blocks):
        state.put(b"k" * 32, b"%d" % number)
        state.put(b"n" * 32 + bytes([number]), b"new")
        state.put(b"n" * 32 + bytes([number - 1]), None)
        store.append(block(number), state.pending(), state.undo())
        state.seal(number)
    store.close()
    return state


def test_a_reopened_store_gives_back_blocks_state_and_history(tmp_path: Path) -> None:
    expected = filled(tmp_path)
    store, state = Store(tmp_path), State()
    assert not store.empty and store.meta("chain") == b"test" and store.meta("other") is None
    assert store.load(state) == block(2)
    assert dict(state.items()) == dict(expected.items()) and state.root == expected.root
    assert state.at(1).get(b"k" * 32) == b"1" and state.at(1).keys(b"n" * 32) == [b"n" * 32 + b"\x01"]
    assert store.block(1) == store.block_by_hash(block(1).hash) == block(1)
    assert store.hash_of(2) == block(2).hash and store.hash_of(3) is None and store.block(9) is None
    store.close()


def test_a_new_store_is_empty_and_so_is_one_whose_making_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    store = Store(tmp_path)
    assert store.empty
    store.close()


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(LocalnetError, match=r"not empty and holds no localnet chain.*--state"):
        Store(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE accounts (name TEXT)")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(LocalnetError, match="database of another program"):
        Store(tmp_path)
    assert path.read_bytes() == before


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("PRAGMA user_version = 99")
    database.commit()
    database.close()
    with pytest.raises(LocalnetError, match="format 99"):
        Store(tmp_path)


@pytest.mark.parametrize("damage", ["garbage", "cut", "middle"])
def test_a_damaged_file_is_one_clear_error_and_stays_as_it_is(tmp_path: Path, damage: str) -> None:
    filled(tmp_path, blocks=60)
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    if damage == "garbage":
        data[:] = b"no database at all" * 500
    elif damage == "cut":
        del data[4096 : len(data) - 100]
    else:
        data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(LocalnetError, match=r"damaged|cannot use"):
        store = Store(tmp_path)
        try:
            store.load(State())
        finally:
            store.close()
    assert path.read_bytes() == bytes(data)


def test_a_store_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    held = Store(tmp_path)
    program = f"from subnet.localnet.store import Store; from pathlib import Path; Store(Path({str(tmp_path)!r}))"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    held.close()
    assert "in use by another localnet" in other.stderr
    Store(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalnetError, match="cannot open the state folder"):
        Store(tmp_path / "file" / "below")


def test_a_block_that_cannot_be_written_names_the_remedy_and_leaves_nothing(tmp_path: Path) -> None:
    state = filled(tmp_path)
    store = Store(tmp_path)
    with pytest.raises(LocalnetError, match=r"cannot write block 2 .*start again"):
        store.append(block(2), {b"x" * 32: b"y"}, {})
    loaded = State()
    store.load(loaded)
    assert loaded.root == state.root
    store.close()


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.binary(max_size=5), st.one_of(st.none(), st.binary(max_size=5)), max_size=5))
def test_journals_pack_and_unpack(journal: dict) -> None:
    assert unpack_journal(pack_journal(journal)) == journal
