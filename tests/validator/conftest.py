"""A swarm without a network: miners that really train a small model, their contributions, and a judge of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from subnet.config import DataConfig, ModelConfig, RunConfig, load_run
from subnet.data.assignment import sample_ids
from subnet.data.prepare import prepare
from subnet.data.shards import Shards
from subnet.diloco.aggregate import norm
from subnet.diloco.codec import decode_part, encode_tree
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import hash_leaves
from subnet.diloco.merkle import root as merkle_root
from subnet.diloco.outer import outer_step
from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import PartResult, ReducedPart, decoded, reduce
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import Roster
from subnet.exchange.round import Update
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import Case, Judge

DEMO = load_run("demo")
MAX_UIDS = 16
SMALL = ModelConfig("custom", 264, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=2,
                    seq_len=64)  # fmt: skip


@dataclass
class Swarm:
    """`theta` is the state of outer step `round`; every miner keeps its own inner optimizer, as the real one does."""

    run: RunConfig
    shards: Shards
    device: str = "cpu"
    round: int = 0
    theta: torch.Tensor = field(init=False)
    momentum: torch.Tensor = field(init=False)
    trainers: dict[int, InnerTrainer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = Layout.of(parameter_shapes(self.run.model).items(), self.run.codec.leaf_size)
        self.scheme = Scheme.of(self.run, self.layout)
        self.theta = self.layout.flatten(init_theta(self.run.model, self.run.seed))
        self.momentum = torch.zeros_like(self.theta)

    def judge(self, **changes: Any) -> Judge:
        run = replace(self.run, scoring=replace(self.run.scoring, **changes))
        return Judge(self.scheme, Evaluator(run, self.shards, self.layout, self.device, MAX_UIDS), run, b"secret")

    def train(self, uid: int, steps: int, data_of: int | None = None) -> torch.Tensor:
        """The pseudo-gradient of `steps` inner steps on the samples of `uid`, or of another, as its owner sends it."""
        train = self.run.train
        trainer = self.trainers.setdefault(uid, InnerTrainer(build_model(self.run.model), self.run.train, self.layout))
        count = train.inner_steps * train.batch_size
        whose = uid if data_of is None else data_of
        ids = sample_ids(self.run.seed, self.shards.num_train, self.round, whose, MAX_UIDS, count)
        batches = (self.shards.train(ids[i : i + train.batch_size]) for i in range(0, count, train.batch_size))
        trainer.load(self.theta)
        trainer.train(batches, steps, self.round * train.inner_steps, lambda: False)
        return self.sent(self.theta - trainer.theta())

    def sent(self, delta: torch.Tensor) -> torch.Tensor:
        """What others decode of it."""
        leaves = encode_tree(self.scheme.codec, self.layout, delta)
        return decode_part(self.scheme.codec, self.layout, leaves, 0, self.layout.num_leaves)

    def case(self, deltas: Mapping[str, torch.Tensor], steps: Mapping[str, int] | None = None, **changes: Any) -> Case:
        """The round in which these were sent; uids in the order given. Everybody is averaged, and reduces its part."""
        steps = dict.fromkeys(deltas, self.run.train.inner_steps) | dict(steps or {})
        roster = Roster(self.round, "", b"r" * 32, b"s" * 32, tuple(
            Commitment(
                hotkey, merkle_root(hash_leaves(encode_tree(self.scheme.codec, self.layout, delta))), norm(delta),
                steps[hotkey] * self.run.train.batch_size * self.run.model.seq_len, steps[hotkey], b"s" * 32,
            )
            for hotkey, delta in deltas.items()
        ), len(deltas))  # fmt: skip
        update = update_of(self.scheme, roster, list(deltas.values()))
        case = Case(self.round, self.theta, update, frozenset(deltas), {h: uid for uid, h in enumerate(deltas)},
                    bytes([self.round]) * 32, bytes([self.round + 1]) * 32)  # fmt: skip
        return replace(case, **changes)

    def apply(self, case: Case) -> None:
        outer = self.run.outer
        self.theta, self.momentum = outer_step(
            self.theta, self.momentum, case.update.delta, outer.lr, outer.momentum, outer.nesterov
        )
        self.round += 1


def update_of(scheme: Scheme, roster: Roster, values: Sequence[torch.Tensor]) -> Update:
    """The reduced parts as every reducer honestly makes its own."""
    made: list[ReducedPart] = []
    delta = torch.empty(scheme.layout.numel)
    for part, (start, stop) in enumerate(roster.parts(scheme.layout)):
        first, last = scheme.layout.span(start, stop)
        members = [decoded(scheme.layout, value[first:last], start) for value in values]
        made.append(reduce(scheme, roster, part, members))
        delta[first:last] = decode_part(scheme.reduced, scheme.layout, made[-1].leaves, start, stop)
    everybody = frozenset(c.hotkey for c in roster.mean)
    words = {p.part: PartResult(p.part, roster.mean[p.part].hotkey, p.root, roster.root, everybody) for p in made}
    return Update(roster, delta, {part: {word.reducer: word} for part, word in words.items()}, words)


@pytest.fixture(scope="session")
def small_run() -> RunConfig:
    return replace(
        DEMO,
        model=SMALL,
        train=replace(DEMO.train, inner_steps=12, batch_size=4, micro_batch=4, warmup_steps=4, lr=4e-3),
        codec=replace(DEMO.codec, leaf_size=2048),
        scoring=replace(DEMO.scoring, audit_rate=1.0),
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, small_run: RunConfig) -> Shards:
    """This project's own sources."""
    folder, cache = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("cache")
    sources = sorted(Path(__file__).parents[2].glob("subnet/**/*.py"))
    (folder / "all.txt").write_text("\n".join(path.read_text(encoding="utf-8") for path in sources), encoding="utf-8")
    return prepare(DataConfig("folder", path=str(folder)), cache, small_run.model.seq_len)


@pytest.fixture
def swarm(small_run: RunConfig, corpus: Shards) -> Swarm:
    torch.set_num_threads(1)
    return Swarm(small_run, corpus)
