"""Inner steps really repeated: of honest miners bit for bit, of others not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from subnet.data.assignment import sample_ids
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.exchange.commitment import Commitment
from subnet.exchange.trace import Trace
from subnet.miner.recording import Recorded, Recording
from subnet.model.build import build_model
from subnet.scoring.loss import LossScore
from subnet.scoring.replay import NOT_SHOWN, Finding
from subnet.scoring.table import Observation
from subnet.swarm.blobs import FetchError
from subnet.validator.judgement import WORTHLESS
from subnet.validator.replay import Origin, Replay, audit, with_findings

from .conftest import MAX_UIDS, Swarm

UID, APART = 3, 4
BEACONS = [bytes([n]) * 32 for n in range(40)]


class Player:
    """A miner that records its steps; `half`: it does them on half of every batch."""

    def __init__(self, swarm: Swarm, folder: Path) -> None:
        run = swarm.run
        self.run = replace(
            run, scoring=replace(run.scoring, replay_steps=APART, replay_rate=1.0),
            rounds=replace(run.rounds, delay=1),
        )  # fmt: skip
        self.swarm, self.folder = swarm, folder
        self.trainer = InnerTrainer(build_model(run.model), run.train, swarm.layout)
        self.half = False
        # A round before, so that the optimizer's moments are not new.
        self.trainer.load(swarm.theta)
        self.trainer.train(self.batches(0), run.train.inner_steps, 0, lambda: False)
        self.origin = Origin(1, 1, self.trainer.theta())

    def batches(self, round_index: int) -> Any:
        train, shards = self.run.train, self.swarm.shards
        count = train.inner_steps * train.batch_size
        ids = sample_ids(self.run.seed, shards.num_train, round_index, UID, MAX_UIDS, count)
        for i in range(0, count, train.batch_size):
            yield shards.train(ids[i : i + train.batch_size])

    def played(self, ahead: int = 0, done: int = 12) -> Recorded:
        """`done` of the 12 steps it says it did; `ahead` of them before the outer parameters came."""
        recording, losses, first = Recording(self.folder, self.swarm.layout), [], self.run.train.inner_steps
        outer = self.origin.theta
        noise = 1e-3 * torch.randn(outer.numel(), generator=torch.Generator().manual_seed(1))
        start = outer + noise if ahead else outer
        self.trainer.load(start)
        since = 0
        for at, batch in enumerate(self.batches(1)):
            if ahead and at == ahead:
                self.trainer.load(outer + (self.trainer.theta() - start))
                recording.join()
                since = at
            if (at - since) % APART == 0:
                recording.take(at, first + at, self.trainer)
            if at < done:
                batch = batch[: len(batch) // 2] if self.half else batch
                losses += self.trainer.train([batch], 1, first + at, lambda: False).trace
            else:
                losses.append(losses[-1])
        recorded = recording.finish(losses, first + 12, self.trainer)
        assert recorded is not None
        return recorded

    def replay(self, **settings: Any) -> Replay:
        swarm = self.swarm
        return Replay(self.run, swarm.shards, swarm.layout, build_model(self.run.model), MAX_UIDS, **settings)


@pytest.fixture
def player(swarm: Swarm, tmp_path: Path) -> Player:
    return Player(swarm, tmp_path / "replay")


def committed(recorded: Recorded, hotkey: str = "5me") -> Commitment:
    return Commitment(hotkey, b"r" * 32, 1.0, 1, recorded.trace.steps, b"s" * 32, trace=recorded.root)


Fetch = Callable[..., Awaitable[Sequence[bytes]]]


def shown(recorded: Recorded, withheld: frozenset[int] = frozenset()) -> Fetch:
    """What its owner gives, but for some of the snapshots; sizes are checked as a client does it."""
    offers = {recorded.root: lambda _: recorded.packed}
    offers |= {s.tree.root: s.leaf for n, s in enumerate(recorded.snapshots) if n not in withheld}

    async def fetch(root: bytes, n: int, start: int, stop: int, sizes: Callable[[int], int]) -> Sequence[bytes]:
        if root not in offers:
            raise FetchError("unknown root")
        leaves = [offers[root](leaf) for leaf in range(start, stop)]
        assert all(len(leaf) <= sizes(i) for i, leaf in enumerate(leaves, start))
        return leaves

    return fetch


def audited(player: Player, recorded: Recorded, replay: Replay | None = None) -> dict[int, Finding]:
    """Every segment audited, each by a beacon that draws it."""
    replay, found = replay or player.replay(), {}
    for beacon in BEACONS:
        piece = asyncio.run(replay.pull(committed(recorded), beacon, player.origin, shown(recorded)))
        if piece.number not in found:
            found[piece.number] = replay.repeat(piece, UID, player.origin, lambda: False)
    assert sorted(found) == list(range(len(recorded.trace.marks) - 1))
    return found


def test_honest_steps_come_out_bit_for_bit_and_near_in_another_precision(player: Player):
    recorded = player.played()
    for finding in audited(player, recorded).values():
        assert finding.passed and finding.exact and finding.loss_gap == 0.0 and finding.distance == 0.0
    for finding in audited(player, recorded, player.replay(precision=torch.bfloat16)).values():
        assert finding.passed and not finding.exact and finding.distance > 0.0


def test_a_first_round_has_no_moments_and_passes_as_well(player: Player):
    player.trainer.load_state_dict({})
    assert all(finding.exact for finding in audited(player, player.played()).values())


def test_steps_done_ahead_of_the_outer_parameters_pass(player: Player):
    found = audited(player, player.played(ahead=6))
    assert len(found) == 4 and all(finding.passed for finding in found.values())
    assert [n for n, finding in sorted(found.items()) if not finding.exact] == [1]
    assert found[1].distance < 1e-3


def test_steps_that_were_not_done_fail_wherever_they_are_looked_for(player: Player):
    found = audited(player, cheated(player, 4))
    assert [found[n].passed for n in range(3)] == [True, False, False]


def cheated(player: Player, done: int) -> Recorded:
    """A miner that stops after `done` steps and makes up the rest as well as the wire's rules want it."""
    recorded = player.played(done=done)
    first = recorded.trace.marks[0].adam_step
    marks = tuple(replace(m, adam_step=first + m.at) for m in recorded.trace.marks)
    trace = replace(recorded.trace, marks=marks)
    return changed(recorded, trace)


def changed(recorded: Recorded, trace: Trace) -> Recorded:
    packed = trace.pack()
    return replace(recorded, trace=trace, packed=packed, tree=Tree(hash_leaves([packed])))


def test_halved_batches_fail(player: Player):
    player.half = True
    assert not any(finding.passed for finding in audited(player, player.played()).values())


def test_another_miners_steps_fail(player: Player):
    recorded, replay = player.played(), player.replay()
    piece = asyncio.run(replay.pull(committed(recorded), BEACONS[0], player.origin, shown(recorded)))
    assert replay.repeat(piece, UID + 1, player.origin, lambda: False).passed is False


def test_steps_from_another_state_fail(player: Player):
    recorded = player.played()
    player.origin = replace(player.origin, theta=player.swarm.theta)
    assert audited(player, recorded)[0].passed is False


def test_with_no_time_left_nothing_is_said(player: Player):
    recorded, replay = player.played(), player.replay()
    piece = asyncio.run(replay.pull(committed(recorded), BEACONS[0], player.origin, shown(recorded)))
    assert replay.repeat(piece, UID, player.origin, lambda: True).passed is None


def audits(player: Player, offers: dict[str, tuple[Commitment, Fetch]], seconds: float = 60.0) -> dict[str, Finding]:
    async def compute(work: Callable[..., Finding], *arguments: Any) -> Finding:
        return work(*arguments)

    commitments = [commitment for commitment, _ in offers.values()]
    return asyncio.run(audit(
        player.replay(), commitments, dict.fromkeys(offers, UID), BEACONS[0], player.origin,
        lambda hotkey, limit: offers[hotkey][1], lambda: seconds, compute,
    ))  # fmt: skip


def test_everybody_drawn_is_audited_and_who_shows_nothing_or_nonsense_fails(player: Player):
    recorded = player.played()
    commitment = committed(recorded)
    trace = recorded.trace
    marks = (replace(trace.marks[0], lr_step=10**6), *trace.marks[1:])
    strange = changed(recorded, replace(trace, marks=marks))
    old = changed(recorded, replace(trace, marks=(replace(trace.marks[0], adam_step=0), *trace.marks[1:])))
    offers = {
        "good": (replace(commitment, hotkey="good"), shown(recorded)),
        "none": (replace(commitment, hotkey="none", trace=b""), shown(recorded)),
        "gone": (replace(commitment, hotkey="gone"), shown(recorded, frozenset(range(4)))),
        "more": (replace(commitment, hotkey="more", steps=11), shown(recorded)),
        "rate": (committed(strange, "rate"), shown(strange)),
        "adam": (committed(old, "adam"), shown(old)),
    }
    found = audits(player, offers)
    assert {hotkey: finding.passed for hotkey, finding in found.items()} == {
        "good": True, "none": False, "gone": False, "more": False, "rate": False, "adam": False
    }  # fmt: skip
    assert found["none"].why == "no trace was committed" and found["gone"].why == NOT_SHOWN
    assert found["more"].why == "trace of another number of steps"


def test_who_has_too_little_time_to_show_it_is_not_accused(player: Player):
    recorded = player.played()
    gone = {"5me": (committed(recorded), shown(recorded, frozenset(range(4))))}
    assert audits(player, gone, seconds=1.0)["5me"].passed is None


def test_findings_join_the_observations_but_not_those_of_a_link_that_gave_nothing():
    loss = LossScore(0.1, 0.01, 0.1, 0.01)
    seen = {h: Observation(loss, 1.0, True) for h in "abc"} | {"d": Observation(WORTHLESS, 1.0, True)}
    findings = {"a": Finding(True), "b": Finding(False, "x"), "d": Finding(False, NOT_SHOWN)}
    joined = with_findings(seen, findings)
    assert {h: o.replayed for h, o in joined.items()} == {"a": True, "b": False, "c": None, "d": False}
    nothing = {h: Observation(None, 1.0, True) for h in "abcd"}
    assert with_findings(nothing, findings)["d"].replayed is None
