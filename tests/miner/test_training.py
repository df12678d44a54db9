"""Inner steps of a round, and those done ahead while an exchange is going on."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from subnet.config import ModelConfig, RunConfig, load_run
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.diloco.snapshot import num_leaves
from subnet.errors import UserError
from subnet.exchange.round import Round
from subnet.exchange.trace import open_trace
from subnet.exchange.window import Window
from subnet.miner.recording import Recorded
from subnet.miner.training import Training
from subnet.model.build import init_theta
from subnet.model.presets import parameter_shapes
from subnet.swarm.store import BlobStore

DEMO = load_run("demo")
RUN = replace(
    DEMO,
    model=ModelConfig("custom", 264, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1,
                      seq_len=8),
    train=replace(DEMO.train, inner_steps=6, batch_size=2, micro_batch=2),
    scoring=replace(DEMO.scoring, replay_rate=0.0),
)  # fmt: skip
AUDITED = replace(RUN, scoring=replace(RUN.scoring, replay_rate=0.02, replay_steps=4))
EAGER = replace(AUDITED, rounds=replace(RUN.rounds, delay=1))
NOWHERE = Path("/nowhere")
LAYOUT = Layout.of(parameter_shapes(RUN.model).items(), RUN.codec.leaf_size)
THETA = LAYOUT.flatten(init_theta(RUN.model, RUN.seed))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def block(self) -> float:
        return self.now


class FakeNeuron(SimpleNamespace):
    """As much of a neuron as training reads. Its shards give tokens that name the sample; `asked` remembers them."""

    def __init__(self, run: RunConfig = RUN, home: Path = NOWHERE) -> None:
        self.asked: list[int] = []
        super().__init__(
            run=run,
            node=SimpleNamespace(device="cpu", home=home),
            swarm=SimpleNamespace(store=BlobStore()),
            layout=LAYOUT,
            uid=3,
            signer=SimpleNamespace(ss58="5me"),
            flags=SimpleNamespace(netuid=2),
            clock=Clock(),
            stopping=asyncio.Event(),
            state=SimpleNamespace(theta=THETA, step=0),
            shards=SimpleNamespace(num_train=4096 * 16, train=self.samples),
        )

    def samples(self, ids: Any) -> torch.Tensor:
        self.asked += list(map(int, ids))
        return torch.tensor([[(int(i) + k) % 264 for k in range(8)] for i in ids])

    async def compute(self, work: Any, *args: Any) -> Any:
        await asyncio.sleep(0)
        return work(*args)


def round_of(index: int) -> Round:
    return Round(Window.of_round(RUN.rounds, index), None)  # type: ignore[arg-type]


async def ahead_done(training: Training, steps: int) -> None:
    """Until so many steps have been done ahead."""
    neuron: Any = training.neuron
    before = len(neuron.asked)
    while len(neuron.asked) - before < steps * RUN.train.batch_size:
        await asyncio.sleep(0)


def test_a_round_trains_every_assigned_sample_once_from_the_outer_parameters():
    async def act():
        training = Training(FakeNeuron())
        result = await training.round(round_of(0))
        assert (result.steps, result.tokens, len(result.losses)) == (6, 6 * 2 * 8, 6)
        first = list(training.neuron.asked)
        assert len(set(first)) == 12 and training.seconds > 0.0
        again = Training(FakeNeuron())
        await again.round(round_of(0))
        assert again.neuron.asked == first and torch.equal(again.trainer.theta(), training.trainer.theta())
        await training.round(round_of(1))
        assert not set(training.neuron.asked[12:]) & set(first)

    asyncio.run(act())


def test_the_phase_ends_the_round():
    async def act():
        training = Training(FakeNeuron())
        training.neuron.clock.now = float(round_of(0).window.train_end)
        assert (await training.round(round_of(0))).steps == 0

    asyncio.run(act())


def test_what_was_done_ahead_is_put_on_top_of_the_new_outer_parameters():
    async def act():
        training = Training(FakeNeuron())
        await training.round(round_of(0))
        committed = training.trainer.theta()
        training.begin_ahead(round_of(0))
        await ahead_done(training, 2)
        training.neuron.state = SimpleNamespace(theta=THETA + 0.125, step=1)
        training.neuron.clock.now = float(round_of(1).window.train_end)  # nothing but what was done ahead
        result = await training.round(round_of(1))
        assert 2 <= result.steps <= 6
        moved = training.trainer.theta() - training.neuron.state.theta
        assert 0.0 < float(moved.norm()) < float((committed - THETA).norm()) * 2
        # The same steps from the same place, without an exchange in between.
        plain = Training(FakeNeuron())
        await plain.round(round_of(0))
        plain.trainer.train(plain._batches(1, 0), result.steps, 6, lambda: False)
        torch.testing.assert_close(moved, plain.trainer.theta() - committed, rtol=1e-4, atol=1e-6)

    asyncio.run(act())


def test_ahead_and_the_rest_are_one_rounds_samples_and_no_more_than_its_steps():
    async def act():
        training = Training(FakeNeuron())
        await training.round(round_of(0))
        training.begin_ahead(round_of(0))
        await ahead_done(training, 3)
        training.neuron.state = SimpleNamespace(theta=THETA, step=1)
        result = await training.round(round_of(1))
        assert result.steps == 6
        plain = Training(FakeNeuron())
        await plain.round(round_of(1))
        assert training.neuron.asked[12:] == plain.neuron.asked

    asyncio.run(act())


def test_steps_ahead_of_a_round_that_was_missed_are_dropped():
    async def act():
        training = Training(FakeNeuron())
        await training.round(round_of(0))
        training.begin_ahead(round_of(0))
        await ahead_done(training, 1)
        training.neuron.clock.now = float(round_of(2).window.train_end)
        result = await training.round(round_of(2))
        assert result.steps == 0 and torch.equal(training.trainer.theta(), THETA)

    asyncio.run(act())


def test_an_audited_round_keeps_snapshots_every_so_many_steps_and_every_loss(tmp_path: Path):
    async def act():
        training = Training(FakeNeuron(AUDITED, tmp_path))
        result = await training.round(round_of(0))
        recorded = training.recorded
        assert recorded is not None
        marks = recorded.trace.marks
        assert [m.at for m in marks] == [0, 4, 6] == [m.lr_step for m in marks] == [m.adam_step for m in marks]
        assert recorded.trace.losses == pytest.approx(result.losses, rel=1e-6) and len(result.losses) == 6
        assert recorded.snapshots[0].leaf(0) == THETA[slice(*LAYOUT.leaves[0])].numpy().tobytes()
        last = training.trainer.theta()[slice(*LAYOUT.leaves[1])]
        assert recorded.snapshots[-1].leaf(1) == last.numpy().tobytes()
        plain = Training(FakeNeuron())
        await plain.round(round_of(0))
        assert torch.equal(plain.trainer.theta(), training.trainer.theta())

    asyncio.run(act())


def test_what_was_kept_is_shown_for_a_round_and_then_removed(tmp_path: Path):
    async def act():
        training = Training(FakeNeuron(AUDITED, tmp_path))
        store, folder = training.neuron.swarm.store, tmp_path / "replay"
        for index in range(3):
            await training.round(round_of(index))
            assert training.recorded is not None
            training.recorded.offer(store, round_of(index).window)
        assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
        assert len(store) == 2 * 4
        entry = store.entry(training.recorded.root)
        assert entry is not None and entry.not_before_block == round_of(2).window.commit_end
        training.neuron.clock.now = float(round_of(3).window.train_end)
        await training.round(round_of(3))
        assert training.recorded is None and [path.name for path in folder.iterdir()] == ["2"]

    asyncio.run(act())


def served(store: BlobStore, recorded: Recorded) -> None:
    """Everything can be had, and is what its root says."""
    for mark in recorded.trace.marks:
        entry = store.entry(mark.root)
        assert entry is not None
        leaves = [entry.leaf(i) for i in range(num_leaves(LAYOUT))]
        assert Tree(hash_leaves(leaves)).root == mark.root == asyncio.run(entry.tree()).root
    packed = store.entry(recorded.root)
    assert packed is not None and packed.leaf(0) == recorded.packed


def test_who_starts_again_still_shows_the_round_before(tmp_path: Path):
    training = Training(FakeNeuron(AUDITED, tmp_path))
    for index in range(2):
        asyncio.run(training.round(round_of(index)))
    recorded = training.recorded
    assert recorded is not None
    (tmp_path / "replay" / "7").mkdir()
    (tmp_path / "replay" / "7" / "trace").write_bytes(b"half a trace")
    neuron = FakeNeuron(AUDITED, tmp_path)
    neuron.clock.now = float(round_of(2).window.start)
    again = Training(neuron)
    assert [path.name for path in (tmp_path / "replay").iterdir()] == ["1"]
    served(neuron.swarm.store, recorded)
    entry = neuron.swarm.store.entry(recorded.root)
    assert entry is not None and entry.not_before_block == round_of(1).window.commit_end
    asyncio.run(again.round(round_of(2)))
    served(neuron.swarm.store, recorded)


def test_a_snapshot_in_which_one_round_ends_and_the_next_begins_is_shown_as_long_as_either(tmp_path: Path):
    training = Training(FakeNeuron(EAGER, tmp_path))
    store = training.neuron.swarm.store

    async def act():
        for index in range(3):
            training.neuron.state = SimpleNamespace(theta=THETA + 0.125 * index, step=index)
            await training.round(round_of(index))
            assert training.recorded is not None
            training.begin_ahead(round_of(index))
            await ahead_done(training, 2)
            training.recorded.offer(store, round_of(index).window)
            if index == 1:
                before = training.recorded
        await training.close()
        return before, training.recorded

    before, last = asyncio.run(act())
    assert before.trace.marks[-1].root == last.trace.marks[0].root
    served(store, before)
    served(store, last)
    training._forget(3)
    served(store, last)


def test_steps_ahead_are_kept_with_the_place_where_the_outer_parameters_came(tmp_path: Path):
    async def act():
        training = Training(FakeNeuron(AUDITED, tmp_path))
        await training.round(round_of(0))
        eager = training.trainer.theta()
        training.begin_ahead(round_of(0))
        await ahead_done(training, 2)
        training.neuron.state = SimpleNamespace(theta=THETA + 0.125, step=1)
        result = await training.round(round_of(1))
        recorded = training.recorded
        assert recorded is not None and result.steps == 6
        trace = recorded.trace
        assert trace.joined > 0 and trace.marks[-1].at == 6 and open_trace(recorded.packed, EAGER) == trace
        assert recorded.snapshots[0].leaf(0) == eager[slice(*LAYOUT.leaves[0])].numpy().tobytes()
        assert [m.adam_step - 6 for m in trace.marks] == [m.at for m in trace.marks]

    asyncio.run(act())


def test_a_full_disk_is_told_with_its_remedy(tmp_path: Path):
    async def act():
        training = Training(FakeNeuron(AUDITED, tmp_path))
        (tmp_path / "replay").write_text("in the way")
        with pytest.raises(UserError, match="make room"):
            await training.round(round_of(0))

    asyncio.run(act())


def test_leaving_ends_what_is_under_way():
    async def act():
        training = Training(FakeNeuron())
        await training.round(round_of(0))
        training.begin_ahead(round_of(0))
        ahead = training._ahead
        await asyncio.wait_for(training.close(), 10.0)
        assert ahead is not None and ahead.task is not None and ahead.task.done()

    asyncio.run(act())


@pytest.mark.parametrize(("uid", "message"), [(None, "no longer registered"), (256, "no share of the data")])
def test_who_has_no_samples_is_told_so(uid, message):
    async def act():
        neuron = FakeNeuron()
        neuron.uid = uid
        with pytest.raises(UserError, match=message):
            await Training(neuron).round(round_of(0))

    asyncio.run(act())
