"""A swarm without a network: real training, codec, roster, butterfly and outer step, in one process.

Not a simulation of time: everybody's message arrives. What a peer commits to, shows, reduces and claims is its `Move`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from subnet.config import ModelConfig, RunConfig, load_run
from subnet.data.assignment import held_out_ids, sample_ids
from subnet.data.prepare import prepare
from subnet.data.shards import Shards
from subnet.diloco.aggregate import norm
from subnet.diloco.codec import decode_part, encode_part, encode_tree
from subnet.diloco.inner import InnerTrainer, evaluate
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.diloco.outer import outer_step
from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import PartResult, Read, decoded, reduce
from subnet.exchange.commitment import Commitment, norm_limit
from subnet.exchange.referee import made_of, ranked
from subnet.exchange.roster import Member, Roster, averaging_order
from subnet.exchange.round import Update
from subnet.home import shards_folder
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes

Rule = Literal["mean", "trimmed", "centered_clip"]
MAX_UIDS = 32
_LOSS_SAMPLES = 256
_EVAL_BATCH = 32


def arena_run(rule: Rule, redundancy: int = 1) -> RunConfig:
    """The demo's run with a model of 38,000 parameters and rounds of twelve inner steps, averaged by `rule`.

    `redundancy`: reducers of each part.
    """
    run = load_run("demo")
    model = ModelConfig("custom", 264, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=2,
                        seq_len=64)  # fmt: skip
    return replace(
        run,
        name="arena",
        model=model,
        train=replace(run.train, inner_steps=12, batch_size=4, micro_batch=4, warmup_steps=4, lr=4e-3),
        codec=replace(run.codec, leaf_size=2048),
        aggregate=replace(run.aggregate, rule=rule, redundancy=redundancy),
    )


def arena_shards(run: RunConfig) -> Shards:
    """The embedded corpus, cut for the arena's model."""
    return prepare(run.data, shards_folder(), run.model.seq_len)


@dataclass(frozen=True)
class Move:
    """What a hotkey does in a round. `delta`: fp32 of the layout's size, before the codec; None: it commits to nothing.

    `steps`: declared inner steps. `readable`: the bytes it shows are what it committed to. `delivers`: reducers get
    them; validators always do. `reduces`: "right", "wrong" (and signs for it) or "nothing". `agrees`: its digest is
    right.
    """

    delta: Tensor | None
    steps: int
    readable: bool = True
    delivers: bool = True
    reduces: str = "right"
    agrees: bool = True


@dataclass(frozen=True)
class Played:
    """A round: the state it began from, what everybody can read of everybody, and the update that came of it."""

    theta: Tensor
    update: Update
    shown: Mapping[str, Tensor | None]
    agreed: frozenset[str]


@dataclass
class World:
    """The swarm's state, and the inner optimizers that its machines keep from round to round."""

    run: RunConfig
    shards: Shards
    round: int = 0
    theta: Tensor = field(init=False)
    momentum: Tensor = field(init=False)
    trainers: dict[str, InnerTrainer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = Layout.of(parameter_shapes(self.run.model).items(), self.run.codec.leaf_size)
        self.scheme = Scheme.of(self.run, self.layout)
        self.theta = self.layout.flatten(init_theta(self.run.model, self.run.seed))
        self.momentum = torch.zeros_like(self.theta)
        self._model = build_model(self.run.model)

    def train(self, machine: str, batches: Iterator[Tensor], steps: int) -> Tensor:
        """The pseudo-gradient of `steps` inner steps on `batches`; `machine` names the optimizer that goes on."""
        trainer = self.trainers.setdefault(
            machine, InnerTrainer(build_model(self.run.model), self.run.train, self.layout)
        )
        trainer.load(self.theta)
        trainer.train(batches, steps, self.round * self.run.train.inner_steps, lambda: False)
        return self.theta - trainer.theta()

    def batches(self, uid: int) -> Iterator[Tensor]:
        """The samples that `uid` is assigned this round, a batch for each inner step."""
        train = self.run.train
        count = train.inner_steps * train.batch_size
        ids = sample_ids(self.run.seed, self.shards.num_train, self.round, uid, MAX_UIDS, count)
        return (self.shards.train(ids[i : i + train.batch_size]) for i in range(0, count, train.batch_size))

    def beacon(self, what: str) -> bytes:
        """A block hash of this round that nobody could know before."""
        return what.encode().ljust(24, b".") + self.round.to_bytes(8, "big")

    def play(self, moves: Mapping[str, Move], incentive: Mapping[str, float]) -> Played:
        """Everybody moves: roster by the averaging rule, every part by its reducer, one outer step."""
        committed = {hotkey: move for hotkey, move in moves.items() if move.delta is not None}
        shown: dict[str, Tensor | None] = {}
        commitments: dict[str, Commitment] = {}
        for hotkey, move in committed.items():
            assert move.delta is not None
            leaves = encode_tree(self.scheme.codec, self.layout, _bounded(move.delta, norm_limit(self.run)))
            sent = decode_part(self.scheme.codec, self.layout, leaves, 0, self.layout.num_leaves)
            tokens = move.steps * self.run.train.batch_size * self.run.model.seq_len
            root = Tree(hash_leaves(leaves)).root
            commitments[hotkey] = Commitment(hotkey, root, norm(sent), tokens, move.steps, b"s" * 32)
            shown[hotkey] = sent if move.readable else None
        members = {h: Member(h, incentive.get(h, 0.0), False) for h in moves}
        order, averaged, earning = averaging_order(self.beacon("order"), list(committed), members, self.run.rounds)
        listed = tuple(commitments[h] for h in order)
        roster = Roster(self.round, "", b"r" * 32, b"s" * 32, listed, averaged, earning)
        update = self._reduced(roster, moves, shown)
        played = Played(self.theta, update, shown, frozenset(h for h, move in moves.items() if move.agrees))
        outer = self.run.outer
        self.theta, self.momentum = outer_step(
            self.theta, self.momentum, update.delta, outer.lr, outer.momentum, outer.nesterov
        )
        self.round += 1
        return played

    def loss(self) -> float:
        """Held-out loss of the state, nats a byte, on the same samples in every world."""
        with torch.no_grad():
            views = self.layout.unflatten(self.theta)
            for name, parameter in self._model.named_parameters():
                parameter.copy_(views[name])
        tokens = self.shards.held_out(held_out_ids(b"arena", self.shards.num_held_out, _LOSS_SAMPLES))
        return float(np.concatenate([evaluate(self._model, batch) for batch in tokens.split(_EVAL_BATCH)]).mean())

    def _reduced(self, roster: Roster, moves: Mapping[str, Move], shown: Mapping[str, Tensor | None]) -> Update:
        update = Update(roster, torch.zeros(self.layout.numel))
        read = [shown[c.hotkey] if moves[c.hotkey].delivers else None for c in roster.mean]
        included = frozenset(c.hotkey for c, x in zip(roster.mean, read, strict=True) if x is not None)
        for part, (start, stop) in enumerate(roster.parts(self.layout)):
            reducers = roster.reducers(part, self.run.aggregate.redundancy)
            span = slice(*self.layout.span(start, stop))
            members = [None if x is None else decoded(self.layout, x[span], start) for x in read]
            deeds = {reducer: moves[reducer].reduces for reducer in reducers} if included else {}
            made = {
                reducer: self._made(roster, part, members, deed) for reducer, deed in deeds.items() if deed != "nothing"
            }
            words = [PartResult(part, r, Tree(hash_leaves(m)).root, roster.root, included) for r, m in made.items()]
            update.words[part] = {word.reducer: word for word in words}
            if len({word.root for word in words}) > 1:
                by_hotkey = {c.hotkey: x for c, x in zip(roster.mean, members, strict=True)}
                verdicts = {word.reducer: made_of(self.scheme, roster, word, by_hotkey) for word in words}
                update.faults |= {reducer for reducer, right in verdicts.items() if right is False}
                words = ranked(words, verdicts)
            if not words:
                update.missing.append(part)
                continue
            update.results[part] = words[0]
            leaves = made[words[0].reducer]
            update.delta[span] = decode_part(self.scheme.reduced, self.layout, leaves, start, stop)
        return update

    def _made(self, roster: Roster, part: int, members: Sequence[Read | None], deed: str) -> Sequence[bytes]:
        """The leaves of a part as a reducer serves them: right, or "wrong"."""
        leaves: Sequence[bytes] = reduce(self.scheme, roster, part, members).leaves
        if deed == "wrong":
            run = roster.parts(self.layout)[part]
            leaves = encode_part(
                self.scheme.reduced, self.layout, -decode_part(self.scheme.reduced, self.layout, leaves, *run), *run
            )
        return leaves


def _bounded(x: Tensor, longest: float) -> Tensor:
    """As long as others accept: what is longer is refused at sight, so an attacker sends the longest."""
    length = norm(x)
    return x if length <= 0.9 * longest else x * (0.9 * longest / length)
