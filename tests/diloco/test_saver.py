"""Checkpoints in the background: the loop goes on, one at a time, and a full disk costs a checkpoint only."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest
import torch

from subnet.config import TrainConfig
from subnet.diloco import checkpoint
from subnet.diloco.codec import decode_part, encode_tree
from subnet.diloco.codec.int4 import Int4
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.layout import Layout
from subnet.diloco.outer import outer_step
from subnet.diloco.saver import Saver
from subnet.diloco.state import OuterState

LAYOUT = Layout.of([("w", (64, 50))], 512)
SECONDS = 30.0


def state_at(step: int) -> OuterState:
    theta = torch.full((LAYOUT.numel,), float(step))
    return OuterState(theta, theta / 2, step, LAYOUT)


def step_on_disk(folder: Path) -> int:
    saved = checkpoint.load(folder, LAYOUT)
    return -1 if saved is None else saved.state.step


def test_the_loop_goes_on_while_one_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits until it asks to; a second one is refused as long as the first is under way."""
    disk, save_file = threading.Event(), checkpoint.save_file

    def slow_save_file(*args: object) -> None:
        assert disk.wait(SECONDS)
        save_file(*args)

    monkeypatch.setattr(checkpoint, "save_file", slow_save_file)

    async def act() -> None:
        saver = Saver(tmp_path, kept=2)
        assert await saver.settled(0.0)
        saver.begin(state_at(1), None, {}, {})
        assert saver.busy and not await saver.settled(0.01)
        with pytest.raises(RuntimeError, match="still being written"):
            saver.begin(state_at(2), None, {}, {})
        assert step_on_disk(tmp_path) == -1
        disk.set()
        assert await saver.settled(SECONDS) and not saver.busy
        assert step_on_disk(tmp_path) == 1
        assert await asyncio.wrap_future(saver.begin(state_at(3), None, {}, {}))
        assert step_on_disk(tmp_path) == 3

    asyncio.run(act())


def test_a_full_disk_costs_the_checkpoint_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def act() -> None:
        saver = Saver(tmp_path, kept=1)
        assert await asyncio.wrap_future(saver.begin(state_at(1), None, {}, {}))
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "save_file", full)
            assert not await asyncio.wrap_future(saver.begin(state_at(2), None, {}, {}))
        assert "No space left on device" in caplog.text and "tries again" in caplog.text
        assert step_on_disk(tmp_path) == 1
        assert await asyncio.wrap_future(saver.begin(state_at(3), None, {}, {}))
        assert [p.name for p in tmp_path.iterdir()] == ["00000002"] and step_on_disk(tmp_path) == 3

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())


def test_what_is_no_fault_of_the_disk_is_not_swallowed(tmp_path: Path) -> None:
    async def act() -> None:
        saver = Saver(tmp_path, kept=2)
        saver.begin(state_at(1), None, {}, {"key": b"not JSON"})
        with pytest.raises(TypeError):
            await saver.settled(SECONDS)

    asyncio.run(act())


class Table(torch.nn.Module):
    """A bigram model: the logits of a token are a row of `w`."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(64, 50))

    def forward(self, input_ids: torch.Tensor) -> object:
        return type("Output", (), {"logits": self.w[input_ids]})


class Worker:
    """A worker on its own, as a miner does it: inner AdamW, int4 with error feedback, the outer step."""

    TRAIN = TrainConfig(inner_steps=3, batch_size=4, micro_batch=4, lr=1e-2, warmup_steps=4, decay_steps=30)

    def __init__(self, saved: checkpoint.Checkpoint | None = None) -> None:
        self.trainer = InnerTrainer(Table(), self.TRAIN, LAYOUT)
        self.feedback = ErrorFeedback(LAYOUT.numel)
        self.state = OuterState(torch.zeros(LAYOUT.numel), torch.zeros(LAYOUT.numel), 0, LAYOUT)
        if saved is not None:
            assert saved.feedback is not None
            self.state = saved.state
            self.feedback.load(saved.feedback)
            self.trainer.load_state_dict(saved.inner)

    def round(self) -> None:
        step, inner = self.state.step, self.TRAIN.inner_steps
        chance = torch.Generator().manual_seed(step)  # the data follow from the round
        batches = [torch.randint(0, 50, (4, 16), generator=chance) for _ in range(inner)]
        self.trainer.load(self.state.theta)
        self.trainer.train(batches, inner, step * inner, lambda: False)
        leaves = encode_tree(codec := Int4(128), LAYOUT, self.feedback.add(self.state.theta - self.trainer.theta()))
        sent = decode_part(codec, LAYOUT, leaves, 0, LAYOUT.num_leaves)
        self.feedback.settle(sent, [(0, LAYOUT.numel)])
        theta, momentum = outer_step(self.state.theta, self.state.momentum, sent, 0.7, 0.9, True)
        self.state = OuterState(theta, momentum, step + 1, LAYOUT)


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    """The write of a checkpoint overlaps the next round, which must not change what is written."""

    async def act() -> None:
        whole, saver = Worker(), Saver(tmp_path, kept=2)
        for _ in range(3):
            whole.round()
        saver.begin(whole.state, whole.feedback.residual, whole.trainer.state_dict(), {})
        for _ in range(3):
            whole.round()
        assert await saver.settled(SECONDS)
        resumed = Worker(checkpoint.load(tmp_path, LAYOUT))
        assert resumed.state.step == 3
        for _ in range(3):
            resumed.round()
        assert resumed.state.digest() == whole.state.digest()
        assert torch.equal(resumed.feedback.residual, whole.feedback.residual)
        mine, theirs = resumed.trainer.state_dict(), whole.trainer.state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
        assert float(whole.feedback.residual.norm()) > 0 and float(mine["step"]) == 18

    asyncio.run(act())
