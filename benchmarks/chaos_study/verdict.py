"""What a chaos run has to show for itself: one state, no lost work, no wait beyond its deadline.

Pure: from what the peers said and when, to figures and broken promises. What was applied is read off the state that
most hold at a round's end, and off how those who computed it (not fetched it) say it came about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from chaos_study.plan import KILLS, STALLS, Plan
from subnet.exchange.window import Window

Event = dict[str, Any]

SLACK_SECONDS = 3.0
"""Beyond a phase's deadline, for a peer that nothing happens to: one look-up in the DHT may be under way, and others
use the machine's cores."""
STRUCK_SLACK_SECONDS = 12.0
"""Beyond deadline and stall for a peer whose own daemon hangs: three calls into it, each bounded by four seconds."""
_ROUNDING = 1e-3
"""Share of a part below which what left the error feedback is no more than the rounding of what was added to it."""
_NEXT = {"train": "catch up", "roster": "commit", "scatter": "roster", "gather": "scatter", "apply": "gather"}
"""The phase that ends where another begins."""


@dataclass
class Life:
    """One life of a peer: from its start to its death, in seconds of the wall clock, and what it said meanwhile."""

    peer: int
    number: int
    events: list[Event] = field(default_factory=list)
    died: float | None = None

    @property
    def begun(self) -> Event | None:
        return next((e for e in self.events if e["event"] == "begun"), None)


@dataclass(frozen=True)
class Applied:
    """What the state that most hold after a round is made of: the parts as `BookkeepingMiner` tells them."""

    before: str
    digest: str
    view: Event | None


class Verdict:
    """Figures and failures of one run; `epoch` is the wall time of block 0, `hotkeys` the peers' by index."""

    def __init__(self, plan: Plan, lives: list[Life], hotkeys: list[str], epoch: float, block_time: float) -> None:
        self.plan = plan
        self.lives = lives
        self.hotkeys = hotkeys
        self.epoch = epoch
        self.block_time = block_time
        self.failures: list[str] = []
        self.ends = self._by_round("round")
        self.settled = self._by_round("settled")
        self._void()
        self.majority = {index: _most_held(ends) for index, ends in sorted(self.ends.items())}

    def figures(self) -> dict[str, Any]:
        """Everything that is counted. Fills `failures`."""
        chaotic = range(self.plan.first, self.plan.stop)
        kinds = Counter(blow.kind for index in chaotic for blow in self.plan.of_round(index))
        return {
            "blows": dict(kinds.most_common()),
            "restarts": len(self.lives) - self.plan.peers,
            "agreement": self._agreement(),
            "deadlines": self._deadlines(),
            "conservation": self._conservation(),
        }

    def fail(self, index: int, text: str) -> None:
        self.failures.append(f"seed {self.plan.seed}, round {index}: {text}")

    def healthy(self, peer: int, index: int) -> bool:
        """Whether nothing happened to a peer in a round, in which it was alive from the first block to the last."""
        if any(blow.touches(peer) for blow in self.plan.during(index)):
            return False
        window = Window.of_round(self.plan.rounds, index)
        for life in self.lives:
            begun = life.begun
            if life.peer != peer or begun is None or self._block(begun["time"]) > window.start:
                continue
            if life.died is None or self._block(life.died) >= window.end:
                return True
        return False

    def _agreement(self) -> dict[str, Any]:
        """How often states differed, and how long that lasted."""
        differing, split, repairs = set[int](), 0, Counter[str]()
        wrong: dict[int, int] = {}
        for index, ends in sorted(self.ends.items()):
            held = self.majority[index]
            split += sum(e["digest"] == held for e in ends.values()) * 2 <= len(ends)
            for peer, end in ends.items():
                if end["digest"] != held:
                    differing.add(index)
                    if peer in wrong and self.healthy(peer, index):
                        self.fail(index, f"peer {peer} has held another state since round {wrong[peer]}")
                    wrong.setdefault(peer, index)
                    continue
                if not end["agreed"]:
                    differing.add(index)
                if peer in wrong:
                    lasted = index - wrong.pop(peer)
                    repairs["in the next round" if lasted == 1 else f"after {lasted} rounds"] += 1
                elif not end["agreed"]:
                    repairs["before the next round's commit"] += 1
        for peer, index in wrong.items():
            self.fail(index, f"peer {peer} never held the others' state again")
        steps = [max(e["step"] for e in ends.values()) for ends in self.ends.values()]
        return {
            "rounds": len(self.ends),
            "outer_steps": max(steps, default=0),
            "rounds_with_disagreement": len(differing),
            "rounds_without_majority": split,
            "repairs": dict(repairs),
        }

    def _deadlines(self) -> dict[str, Any]:
        """By how many seconds phases ended beyond their deadline, at worst."""
        worst: dict[str, dict[str, float]] = {"untouched": {}, "struck": {}}
        late = 0
        for life in self.lives:
            inside: dict[int, list[str]] = defaultdict(list)
            trained: dict[int, float] = {}
            for event in life.events:
                if event["event"] not in ("phase", "round"):
                    continue
                index = event["round"]
                phase = _NEXT.get(event.get("phase", ""), "" if event["event"] == "phase" else "apply")
                inside[index].append(event.get("phase", ""))
                if event.get("phase") == "train":
                    trained[index] = self._block(event["time"])
                if not phase:
                    continue
                deadline = self._deadline(life.peer, index, phase, inside[index], trained.get(index, 0.0))
                over = (self._block(event["time"]) - deadline) * self.block_time
                struck = any(blow.touches(life.peer) for blow in self.plan.during(index))
                hung = self.block_time * sum(
                    b.blocks for b in self.plan.during(index) if b.kind in STALLS and b.victim == life.peer
                )
                row = worst["struck" if struck else "untouched"]
                row[phase] = max(row.get(phase, -1e9), round(over, 2))
                late += over > 0
                if over > (STRUCK_SLACK_SECONDS + hung if struck else SLACK_SECONDS):
                    self.fail(index, f"peer {life.peer} ended its {phase} phase {over:.1f} s late")
        return {"seconds_late_at_worst": worst, "late_phases": late}

    def _deadline(self, peer: int, index: int, phase: str, entered: list[str], caught_up: float) -> float:
        window = Window.of_round(self.plan.rounds, index)
        if phase == "catch up":
            return window.gather_end
        if phase == "commit":
            return max(window.commit_end, self.plan.training_ends(peer, index), caught_up)
        # Whoever comes late may still look for the others' roster until the scatter deadline.
        if phase in ("roster", "scatter"):
            return window.scatter_end
        if phase == "gather":
            return window.gather_end if "gather" in entered else window.scatter_end
        return window.end + self.plan.rounds.train_end

    def _conservation(self) -> dict[str, Any]:
        """Whether what left each error feedback is in the state that most hold, and nothing else left it."""
        applied = {index: self._applied(index) for index in self.ends}
        self._check_lineage(applied)
        names = ("contributions", "parts", "parts_lost", "parts_lost_by_repaired_peers", "parts_sent_twice")
        sums = Counter[str](dict.fromkeys((*names, "applied_unseen"), 0))
        worst = 0.0
        for index, settled in sorted(self.settled.items()):
            for peer, event in settled.items():
                if not event["root"]:
                    continue
                worst = max(worst, event["imbalance"])
                sums["contributions"] += 1
                self._compare(index, peer, event, applied.get(index), sums)
        killed = self._killed(applied)
        return {**sums, "worst_imbalance": worst, "killed_in_a_round": dict(killed)}

    def _applied(self, index: int) -> Applied:
        """What the majority's state after a round is made of; no view when the round changed nothing."""
        held = self.majority[index]
        makers = [e for e in self.settled.get(index, {}).values() if e["digest"] == held and e["agreed"]]
        views = [e for e in makers if e["view"] is not None]
        if not views:
            if all(e["before"] != held for e in makers):
                self.fail(index, "nobody says how the state that most hold was made")
            return Applied(held, held, None)
        if any(_made_of(e["view"]) != _made_of(views[0]["view"]) for e in views):
            self.fail(index, "the same state was made of different parts")
        return Applied(views[0]["before"], held, views[0]["view"])

    def _check_lineage(self, applied: dict[int, Applied]) -> None:
        for index in sorted(applied):
            before = applied.get(index - 1)
            if before is not None and applied[index].before != before.digest:
                self.fail(index, "what most held after the round before was given up")

    def _compare(self, index: int, peer: int, event: Event, applied: Applied | None, sums: Counter[str]) -> None:
        """One contribution of one peer: what it took off its books against what was applied, part by part."""
        hotkey, view = self.hotkeys[peer], event["view"]
        shown = applied.view if applied is not None else None
        theirs = shown is not None and shown["listed"].get(hotkey) == event["root"]
        if view is None:
            sums["applied_unseen"] += theirs
            return
        # Under another roster parts are cut elsewhere: none of what this peer thinks it gave is in the others' state.
        same = shown is not None and view["roster"] == shown["roster"]
        sums["applied_unseen"] += theirs and not same
        lost = []
        for part, mine in enumerate(view["parts"]):
            took = mine["taken"] > _ROUNDING * mine["sent"]
            got = shown["parts"][part] if shown is not None and theirs and same else None
            there = got is not None and not got["missing"] and hotkey in got["included"]
            sums["parts"] += 1
            if took and not there:
                lost.append(part)
                sums["parts_lost" if event["agreed"] else "parts_lost_by_repaired_peers"] += 1
            elif there and not took:
                sums["parts_sent_twice"] += 1
        if lost:
            how = "agreed" if event["agreed"] else "differed from the others"
            self.fail(index, f"peer {peer}, which {how}, lost parts {lost}: off its books and in nobody's state")

    def _killed(self, applied: dict[int, Applied]) -> Counter[str]:
        """What became of the rounds in which peers were killed; a round that was over must not be among them."""
        fates = Counter[str]()
        for life in self.lives:
            following = next((x for x in self.lives if (x.peer, x.number) == (life.peer, life.number + 1)), None)
            if life.died is None or following is None or following.begun is None:
                continue
            told = [e["round"] for e in life.events if e["event"] == "checkpoint" and e["ok"]]
            resumed = following.begun["resumed"]
            if told and resumed < max(told):
                self.fail(max(told), f"peer {life.peer} was killed after this round, and went on from round {resumed}")
            entered = [e["round"] for e in life.events if e["event"] == "phase" and e["round"] > resumed]
            sent = {e["round"] for e in life.events if e.get("phase") == "commit" and e["round"] > resumed}
            if len(sent) > 1:
                self.fail(max(sent), f"peer {life.peer} lost more than a round by its death: {sorted(sent)}")
            if not entered:
                fates["nothing lost"] += 1
                continue
            view = applied[entered[0]].view if entered[0] in applied else None
            parts = view["parts"] if view is not None else []
            there = sum(not part["missing"] and self.hotkeys[life.peer] in part["included"] for part in parts)
            fates["round applied" if there == len(parts) > 0 else "applied in part" if there else "round lost"] += 1
        return fates

    def _by_round(self, name: str) -> dict[int, dict[int, Event]]:
        found: dict[int, dict[int, Event]] = defaultdict(dict)
        for life in self.lives:
            for event in life.events:
                if event["event"] == name:
                    found[event["round"]][life.peer] = event
        return dict(found)

    def _void(self) -> None:
        """Forget what was settled but not saved: the peer was killed in between, and its books went back."""
        for life in self.lives:
            if life.number and life.begun is not None:
                before = next(x for x in self.lives if (x.peer, x.number) == (life.peer, life.number - 1))
                for event in before.events:
                    lost = event["event"] == "settled" and event["round"] > life.begun["resumed"]
                    if lost and self.settled[event["round"]].get(life.peer) is event:
                        del self.settled[event["round"]][life.peer]

    def _block(self, wall: float) -> float:
        return (wall - self.epoch) / self.block_time


def _most_held(ends: dict[int, Event]) -> str:
    counts = Counter(e["digest"] for e in ends.values())
    steps = {e["digest"]: e["step"] for e in ends.values()}
    return max(counts, key=lambda digest: (counts[digest], steps[digest], digest))


def _made_of(view: Event) -> Any:
    """The parts that were applied, and whose bytes they hold."""
    parts = [None if part["missing"] else part["included"] for part in view["parts"]]
    return view["listed"], parts


__all__ = ["KILLS", "STALLS", "Life", "Verdict"]
