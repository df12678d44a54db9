"""Ten rounds of a swarm under one attack, judged, paid by Yuma and remembered, beside the same swarm without it.

Honest machines are unequal: some have time for half of the inner steps. A validator judges with the product's own code;
three validators of equal stake set weights, and the chain's own arithmetic makes incentive of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

from torch import Tensor

from subnet.attack.players import COLLUDES, PLAYERS, Knowledge
from subnet.attack.world import MAX_UIDS, Move, Played, Rule, World, arena_run, arena_shards
from subnet.localnet.consensus.yuma import EpochInputs, epoch
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.scoring.trained import PASSED
from subnet.scoring.weights import weights
from subnet.validator.evaluate import Evaluator
from subnet.validator.judgement import Case, Judge

ROUNDS = 10
SPEEDS = (1.0, 1.0, 0.75, 0.5)
"""Share of the inner steps that honest machines have time for, in turn."""
VALIDATORS = 3
NOTHING = 0.01
"""Of an honest machine's pay: below it an attacker counts as found out."""
_U16 = 65_535


@dataclass(frozen=True)
class Setting:
    """One cell: `attackers` of `peers` play `attack` ("" for nobody) for `rounds`. `absent`: their seats stay empty.

    `late`: hotkeys of honest full-speed machines that join in round LATE. `redundancy`: reducers of each part.
    """

    attack: str
    attackers: int
    rule: Rule
    peers: int = 16
    rounds: int = ROUNDS
    absent: bool = False
    late: int = 0
    redundancy: int = 1


LATE = 5


@dataclass
class Season:
    """What came of it, by round. `pay`: incentive by hotkey. `flagged`: honest hotkeys held for copiers, faulty, ..."""

    setting: Setting
    pay: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    flagged: list[list[str]] = field(default_factory=list)
    honest: dict[str, float] = field(default_factory=dict)
    """Hotkey -> share of the inner steps that it does."""
    cheats: list[str] = field(default_factory=list)

    def machine(self, round_: int) -> float:
        """An honest full-speed machine's pay in a round, the mean."""
        full = [self.pay[round_][h] for h, speed in self.honest.items() if speed == 1.0 and "late" not in h]
        return mean(full) if full else 0.0

    def taken(self, round_: int) -> float:
        """What all attackers got in a round, in honest machines' pay."""
        honest = self.machine(round_)
        total = math.fsum(self.pay[round_][h] for h in self.cheats)
        return total / honest if honest else math.inf if total else 0.0

    def found_after(self) -> int | None:
        """Rounds until no attacker ever again got more than `NOTHING` of an honest machine's pay; None if one did."""
        last = len(self.pay)
        for number in reversed(range(len(self.pay))):
            if any(self.pay[number][h] > NOTHING * self.machine(number) for h in self.cheats):
                break
            last = number
        return last if last < len(self.pay) else None

    def ramp(self) -> int | None:
        """Rounds from a late machine's first commitment to half of an established equal's pay, the slowest's."""
        late = [h for h in self.honest if "late" in h]
        for number in range(LATE, len(self.pay)):
            if all(self.pay[number].get(h, 0.0) >= 0.5 * self.machine(number) for h in late):
                return number - LATE + 1
        return None


def play(setting: Setting, progress: Callable[[int, int], None] = lambda *_: None) -> Season:
    """Play one cell. Deterministic on one machine and number of threads."""
    run = arena_run(setting.rule, setting.redundancy)
    shards = arena_shards(run)
    world = World(run, shards)
    honest_count = setting.peers - setting.attackers
    season = Season(setting)
    season.honest = {f"honest-{i:02d}": SPEEDS[i % len(SPEEDS)] for i in range(honest_count)}
    season.honest |= {f"late-{i}": 1.0 for i in range(setting.late)}
    season.cheats = [] if setting.absent else [f"cheat-{i}" for i in range(setting.attackers)]
    hotkeys = [*season.honest, *season.cheats]
    uids = {hotkey: uid for uid, hotkey in enumerate(hotkeys)}
    if len(uids) > MAX_UIDS - 2:
        raise ValueError(f"at most {MAX_UIDS - 2} peers play, got {len(uids)}")
    judge = Judge(world.scheme, Evaluator(run, shards, world.layout, "cpu", MAX_UIDS), run, b"arena")
    table, bonds = ScoreTable(), None
    incentive: dict[str, float] = {}
    before: dict[str, Tensor] = {}
    for number in range(setting.rounds):
        moves, honest = _moves(world, season, uids, before, number)
        played = world.play(moves, incentive)
        seen = judged(judge, world, played, uids, number)
        table = observe(table, number, seen, run.scoring)
        rows = [weights(table, uids, run.scoring, None)] * VALIDATORS
        if setting.attack == COLLUDES and season.cheats:
            rows = [*rows[1:], dict.fromkeys((uids[h] for h in season.cheats), 1.0 / len(season.cheats))]
        incentive, bonds = paid(rows, hotkeys, bonds)
        season.pay.append(incentive)
        season.losses.append(world.loss())
        season.flagged.append(_flagged(season, seen, table))
        before = honest
        progress(number + 1, setting.rounds)
    return season


def judged(judge: Judge, world: World, played: Played, uids: Mapping[str, int], number: int) -> dict[str, Observation]:
    """What a validator makes of a round."""
    samples, audit = (f"{what}{number}".encode().ljust(32, b".") for what in ("samples", "audit"))
    judgement = judge.begin(Case(number, played.theta, played.update, played.agreed, uids, samples, audit))
    for commitment in judgement.wanted:
        judgement.hear(commitment, played.shown[commitment.hotkey])
    for commitment in judgement.undecided():
        delta = played.shown[commitment.hotkey]
        assert delta is not None
        judgement.hear_again(commitment, delta)
    return judgement.observations()


def paid(
    rows: Sequence[Mapping[int, float]], hotkeys: Sequence[str], bonds: object = None
) -> tuple[dict[str, float], object]:
    """One epoch of Yuma: weights by miner of validators of equal stake -> incentive by hotkey, and the bonds."""
    n = VALIDATORS + len(hotkeys)
    on_chain = [
        [(VALIDATORS + uid, round(_U16 * share / max(row.values()))) for uid, share in row.items()] for row in rows
    ]
    result = epoch(
        EpochInputs(
            alpha_stake=[10**12] * VALIDATORS + [0] * len(hotkeys),
            root_stake=[0] * n,
            last_update=[1] * n,
            registered_at=[0] * n,
            weights=[*on_chain, *([] for _ in hotkeys)],
            bonds=bonds or [[]] * n,  # type: ignore[arg-type]
            validator_permit=[True] * VALIDATORS + [False] * len(hotkeys),
            current_block=2,
            tempo=1,
            rao_emission=10**9,
        )
    )
    return {h: float(result.incentive[VALIDATORS + uid]) / _U16 for uid, h in enumerate(hotkeys)}, result.bonds


def _moves(
    world: World, season: Season, uids: Mapping[str, int], before: Mapping[str, Tensor], number: int
) -> tuple[dict[str, Move], dict[str, Tensor]]:
    """Everybody's moves, and the honest contributions among them."""
    full = world.run.train.inner_steps
    moves: dict[str, Move] = {}
    honest: dict[str, Tensor] = {}
    for hotkey, speed in season.honest.items():
        if "late" in hotkey and number < LATE:
            continue
        steps = round(speed * full)
        honest[hotkey] = world.train(hotkey, world.batches(uids[hotkey]), steps)
        moves[hotkey] = Move(honest[hotkey], steps)
    for place, hotkey in enumerate(season.cheats):
        known = Knowledge(world, uids[hotkey], hotkey, place, len(season.cheats), honest, before)
        moves[hotkey] = PLAYERS[season.setting.attack](known)
    return moves, honest


def _flagged(season: Season, seen: Mapping[str, Observation], table: ScoreTable) -> list[str]:
    """Honest hotkeys that this round holds for cheats: near-copies, stale, broken, or not trained on their own data."""
    return [
        hotkey
        for hotkey in season.honest
        if hotkey in seen
        and (
            seen[hotkey].twins
            or seen[hotkey].stale
            or (loss := seen[hotkey].loss) is None
            or not math.isfinite(loss.held_out)
            or table.rows[hotkey].trained <= -PASSED
        )
    ]


def without(setting: Setting) -> Setting:
    """The same honest machines alone; where all reduce rightly, how many do for each part changes nothing."""
    return replace(setting, attack="", absent=True, redundancy=1)
