"""The raw state: what a transaction undoes, what an old block still shows, and what the root depends on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.localnet.state import State, StateDiscarded, page

ITEM = bytes(range(32))
OTHER = bytes(32)
KEYS = [ITEM + bytes([i]) for i in range(4)] + [OTHER + b"\xff", OTHER + b"\xff\xff", OTHER]

edits = st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=3))), max_size=8)


class Abort(Exception):
    pass


@settings(max_examples=60, deadline=None)
@given(st.lists(edits, min_size=1, max_size=12))
def test_every_block_of_the_history_reads_as_it_was(blocks: list[list[tuple[bytes, bytes | None]]]) -> None:
    state, model, past = State(history=5), {}, {}
    for number, changes in enumerate(blocks):
        for key, value in changes:
            state.put(key, value)
            model[key] = value
        state.seal(number)
        past[number] = {key: value for key, value in model.items() if value is not None}
        for old in range(max(0, number - 5), number + 1):
            reader = state.at(old)
            assert {key: reader.get(key) for key in KEYS if reader.get(key) is not None} == past[old]
            for prefix in (ITEM, OTHER, OTHER + b"\xff", b""):
                assert reader.keys(prefix) == sorted(key for key in past[old] if key.startswith(prefix))
        if number > 5:
            with pytest.raises(StateDiscarded):
                state.at(number - 6)
    fresh = State()
    fresh.load(past[len(blocks) - 1].items(), [], 0)
    assert fresh.root == state.root


@settings(max_examples=40, deadline=None)
@given(edits, edits, edits)
def test_a_transaction_that_fails_leaves_no_trace(before: list, outer: list, inner: list) -> None:
    state = State()
    for key, value in before:
        state.put(key, value)
    state.seal(0)
    expected, root = dict(state.items()), state.root
    with pytest.raises(Abort), state.transaction():
        for key, value in outer:
            state.put(key, value)
        with state.transaction():
            for key, value in inner:
                state.put(key, value)
        raise Abort
    assert dict(state.items()) == expected and state.root == root and not state.pending()
    for key, value in inner:
        state.put(key, value)
    state.abandon()
    assert dict(state.items()) == expected and state.root == root


def test_an_inner_failure_keeps_the_outer_changes() -> None:
    state = State()
    with state.transaction():
        state.put(KEYS[0], b"outer")
        with pytest.raises(Abort), state.transaction():
            state.put(KEYS[0], b"inner")
            state.put(KEYS[1], b"inner")
            raise Abort
    assert state.pending() == {KEYS[0]: b"outer"}


def test_what_a_block_changed_and_what_undoes_it() -> None:
    state = State()
    state.put(KEYS[0], b"a")
    state.put(KEYS[1], b"b")
    state.seal(0)
    state.put(KEYS[0], b"c")
    state.put(KEYS[1], None)
    state.put(KEYS[2], b"passing")
    state.put(KEYS[2], None)
    assert state.pending() == {KEYS[0]: b"c", KEYS[1]: None}
    assert state.undo() == {KEYS[0]: b"a", KEYS[1]: b"b"}


def test_pages_are_ascending_and_begin_behind_the_last_key() -> None:
    state = State()
    for key in KEYS:
        state.put(key, b"x")
    first = page(state, ITEM, 3)
    assert first == KEYS[:3]
    assert page(state, ITEM, 3, first[-1]) == KEYS[3:4]
    assert page(state, ITEM, 3, KEYS[3]) == []
