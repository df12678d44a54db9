"""Leaves of several steps, on disk between two attempts."""

from __future__ import annotations

from pathlib import Path

import torch

from subnet.diloco.layout import Layout
from subnet.diloco.state import OuterState
from subnet.exchange.unfinished import UNKNOWN, Unfinished

LAYOUT = Layout.of([("a", (16, 4))], 8)


def state(step: int) -> OuterState:
    values = torch.full((LAYOUT.numel,), float(step))
    return OuterState(values, -values, step, LAYOUT)


def test_what_was_saved_comes_back_and_nothing_else_does(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "unfinished.safetensors"
    assert Unfinished.load(file, LAYOUT) is None
    work = Unfinished.of(state(3))
    work.set_leaf(1, state(5).leaf(1), 5)
    work.save(file)
    again = Unfinished.load(file, LAYOUT)
    assert again is not None and torch.equal(again.steps, work.steps)
    assert torch.equal(again.state.theta, work.state.theta) and torch.equal(again.state.momentum, work.state.momentum)
    assert Unfinished.load(file, Layout.of([("a", (16, 8))], 8)) is None
    file.write_bytes(file.read_bytes()[:100])
    assert Unfinished.load(file, LAYOUT) is None


def test_a_leaf_has_a_step_only_if_both_of_its_halves_do() -> None:
    work = Unfinished.of(state(3))
    work.set_leaf(1, state(5).leaf(1), 5)
    assert [work.step_of(leaf) for leaf in range(3)] == [3, UNKNOWN, 3]
    half = 1 + LAYOUT.num_leaves
    work.set_leaf(half, state(5).leaf(half), 5)
    assert work.step_of(1) == 5


def test_what_this_peer_has_of_a_later_step_replaces_what_came_before() -> None:
    work = Unfinished.of(state(3))
    work.set_leaf(1, state(5).leaf(1), 5)
    work.refresh(state(4))
    assert work.steps.tolist() == [4, 5] + [4] * (work.state.num_leaves - 2)
    assert work.state.leaf(0) == state(4).leaf(0) and work.state.leaf(1) == state(5).leaf(1)
