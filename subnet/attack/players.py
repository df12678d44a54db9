"""The attackers: what each sends in a round, given all that it could know, and more.

They see every honest contribution of the round before they choose, which the protocol's order forbids (nobody can read
one before all are committed to): what fails with that knowledge fails without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

import torch
from torch import Tensor

from subnet.attack.world import MAX_UIDS, Move, World


@dataclass(frozen=True)
class Knowledge:
    """What one attacker acts on. `uid`, `hotkey` and `place` are its own, the place among `count` attackers.

    `honest` and `before`: the honest contributions of this round and of the last, by hotkey.
    """

    world: World
    uid: int
    hotkey: str
    place: int
    count: int
    honest: Mapping[str, Tensor]
    before: Mapping[str, Tensor]

    @property
    def full(self) -> int:
        """H, the inner steps of a round."""
        return self.world.run.train.inner_steps

    def trained(self, steps: int | None = None, data_of: int | None = None) -> Tensor:
        """What this machine's own inner steps give, all of them on its own data unless told otherwise."""
        batches = self.world.batches(self.uid if data_of is None else data_of)
        return self.world.train(self.hotkey, batches, self.full if steps is None else steps)

    def noise(self) -> Tensor:
        """Of the size of an honest contribution."""
        generator = torch.Generator().manual_seed(1000 * self.world.round + self.uid)
        return torch.randn(self.world.layout.numel, generator=generator) * self.stack()[0].std()

    def stack(self) -> Tensor:
        """The honest contributions, `[peers, numel]`."""
        return torch.stack([self.honest[hotkey] for hotkey in sorted(self.honest)])

    def accomplice(self) -> Tensor:
        """What the first attacker's machine really trained: it moves first."""
        trainer = self.world.trainers[f"{self.hotkey.rpartition('-')[0]}-0"]
        return self.world.theta - trainer.theta()

    def last(self, which: int = 0) -> Tensor:
        """An honest contribution of the last round; zeros in the first."""
        hotkeys = sorted(self.before)
        return self.before[hotkeys[which % len(hotkeys)]] if hotkeys else torch.zeros(self.world.layout.numel)


Player = Callable[[Knowledge], Move]


def _zeros(k: Knowledge) -> Move:
    return Move(torch.zeros(k.world.layout.numel), k.full)


def _noise(k: Knowledge) -> Move:
    return Move(k.noise(), k.full)


def _sandbag(share: float) -> Player:
    return lambda k: Move(k.trained(max(1, round(share * k.full))), k.full)


def _others_data(k: Knowledge) -> Move:
    return Move(k.trained(data_of=MAX_UIDS - 1), k.full)


def _same_data(k: Knowledge) -> Move:
    """All attackers train on one uid's samples: the data of one machine, which may lie in its cache."""
    return Move(k.trained(data_of=MAX_UIDS - 2), k.full)


def _overfit(k: Knowledge) -> Move:
    """The first quarter of its samples, four times over: what a predictable evaluation would pay best."""
    few = list(islice(k.world.batches(k.uid), max(1, k.full // 4)))
    return Move(k.world.train(k.hotkey, chain.from_iterable(repeat(few, 5)), k.full), k.full)


def _copier(change: Callable[[Knowledge, Tensor], Tensor]) -> Player:
    """One machine trains, the other hotkeys of its owner send that, changed."""
    return lambda k: Move(k.trained() if k.place == 0 else change(k, k.accomplice()), k.full)


def _splits(k: Knowledge) -> Move:
    """One machine's steps, shared out over its owner's hotkeys and honestly declared."""
    steps = max(1, k.full // k.count)
    return Move(k.trained(steps), steps)


def _alie(k: Knowledge) -> Move:
    """ "A little is enough" (arXiv 1902.06156): the honest mean less 1.5 standard deviations, element by element."""
    honest = k.stack()
    return Move(honest.mean(0) - 1.5 * honest.std(0), k.full)


def _inner_product(k: Knowledge) -> Move:
    """Inner-product manipulation (arXiv 1903.03936): against the honest mean, short enough to look like noise."""
    return Move(-0.5 * k.stack().mean(0), k.full)


PLAYERS: dict[str, Player] = {
    "free rider: zeros": _zeros,
    "free rider: noise": _noise,
    "sandbagger: 10 % of the steps": _sandbag(0.1),
    "sandbagger: 50 % of the steps": _sandbag(0.5),
    "others' data": _others_data,
    "one cache of data for all": _same_data,
    "over-fitter": _overfit,
    "copier: exact": _copier(lambda k, x: x),
    "copier: scaled": _copier(lambda k, x: (0.5 + 0.25 * k.place) * x),
    "copier: noised": _copier(lambda k, x: x + 0.1 * k.noise()),
    "copier: sign flipped": _copier(lambda k, x: -x),
    "copier: mixed of two": _copier(lambda k, x: 0.5 * (x + k.last(k.place))),
    "copier: delayed": lambda k: Move(k.last(k.place), k.full),
    "sign flip": lambda k: Move(-k.trained(), k.full),
    "scaling x 1000": lambda k: Move(1000 * k.trained(), k.full),
    "NaN and Inf": lambda k: Move(k.noise(), k.full, readable=False),
    "ALIE": _alie,
    "inner-product manipulation": _inner_product,
    "stale round": lambda k: Move(None, k.full),
    "equivocation": lambda k: Move(k.trained(), k.full, readable=False),
    "withholding parts": lambda k: Move(k.trained(), k.full, delivers=False, reduces="nothing"),
    "lying reducer": lambda k: Move(k.trained(), k.full, reduces="wrong"),
    "another state for joiners": lambda k: Move(k.trained(), k.full, agrees=False),
    "sybils: one machine's work split": _splits,
    "colluding validator": _zeros,
}
"""Attack -> what its players do. NaN cannot be encoded, equivocation shows other bytes than were committed to: nobody
can read either. A commitment made from a stale state is not listed. A colluding validator weighs free riders alone."""

COLLUDES = "colluding validator"
REDUCE_BADLY = ("withholding parts", "lying reducer")
"""What a second reducer of each part is there for."""


def work_of(attack: str, count: int) -> float:
    """The machines' worth of honest work that `count` attackers bring in: what they may earn together."""
    if attack.startswith("sandbagger"):
        return count * (0.1 if "10 %" in attack else 0.5)
    if attack in ("over-fitter", "scaling x 1000"):  # they do all their steps, and gain nothing beyond
        return float(count)
    one_machine = attack.startswith(("copier", "sybils")) and attack != "copier: delayed"
    return 1.0 if one_machine else 0.0


def names() -> Sequence[str]:
    """All attacks, in the report's order."""
    return list(PLAYERS)
