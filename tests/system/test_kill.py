"""Real processes on the embedded chain, killed with SIGKILL in every phase of a round."""

import asyncio
import io
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from rich.console import Console

from subnet.chain.client import Chain
from subnet.cli.demo import found
from subnet.demo.board import Board, Seat
from subnet.demo.stage import Child, Stage

pytestmark = pytest.mark.slow

MINERS = 4
PATIENCE = 150.0
"""Seconds for whatever must happen within a few rounds of 13.5 seconds, on a busy machine."""
SHORTER = {
    "inner_steps": 6,
    "blocks": 54,
    "train_end": 22,
    "commit_end": 28,
    "roster_end": 34,
    "scatter_end": 41,
    "gather_end": 48,
}
"""The demo's run with less training in a round; the other phases are as long."""


class Town:
    """A running swarm of four miners and a validator."""

    def __init__(self, out: Path) -> None:
        self.stage = Stage(out, block_time=0.25, tempo=72)
        names = ["validator", *(f"miner-{i}" for i in range(MINERS))]
        self.board = Board([Seat(n, "validator" if n == "validator" else "miner", out / n, "") for n in names])
        self.seats = {seat.name: seat for seat in self.board.seats}
        self.children: dict[str, Child] = {}
        self.run_file = out / "town.toml"
        text = (Path(__file__).parents[2] / "runs" / "demo.toml").read_text()
        for key, value in SHORTER.items():
            text, found = re.subn(rf"(?m)^{key} = \d+", f"{key} = {value}", text)
            assert found == 1
        self.run_file.write_text(text)

    async def found(self) -> None:
        self.stage.start_chain()
        chain = await Chain.connect(self.stage.endpoint)
        try:
            await found(chain, self.stage, self.board.seats, Console(file=io.StringIO()))
        finally:
            await chain.close()

    def start(self, name: str) -> None:
        self.children[name] = self.stage.start_neuron(self.seats[name], str(self.run_file), "--no-wandb")

    def kill(self, name: str) -> None:
        self.stage.stop(self.children[name], signal.SIGKILL)

    def wait(self, what: str, condition) -> None:
        """Read events until `condition()` holds; fail with `what` after PATIENCE seconds or when a neuron fell."""
        limit = time.monotonic() + PATIENCE
        self.board.read()
        while not condition():
            assert time.monotonic() < limit, f"not within {PATIENCE} s: {what}"
            fallen = self.stage.fallen()
            assert not fallen, f"{fallen[0].name} ended: {fallen[0].tail()}"
            time.sleep(0.05)
            self.board.read()

    def helpers(self, name: str) -> set[int]:
        """Every process that a neuron has started, and those that these have."""
        family = {self.children[name].process.pid}
        parents = _processes()
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        helpers = family - {self.children[name].process.pid}
        assert len(helpers) >= 2, "the DHT process and the libp2p daemon"
        return helpers


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    town = Town(tmp_path_factory.mktemp("town"))
    try:
        asyncio.run(town.found())
        for name in town.seats:
            town.start(name)
        town.wait(
            "a round that everybody contributed to",
            lambda: all(s.rounds and _took_part(s, s.rounds[-1]) for s in town.seats.values()),
        )
        yield town
    finally:
        town.stage.close()


def _took_part(seat: Seat, event: dict) -> bool:
    """Whether a round's event says that a miner's work went in, or that a validator followed."""
    return event["contributed"] if seat.role == "miner" else event["agreed"]


def _processes() -> dict[int, int]:
    """Parent by process id, without those that have ended."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid): int(parent) for pid, parent, state in map(str.split, table.splitlines()) if state[0] not in "ZX"}


MOMENTS = [
    ("miner-0", "train"),
    ("miner-1", "commit"),
    ("miner-2", "roster"),
    ("miner-3", "scatter"),
    ("miner-0", "gather"),
    ("miner-1", "apply"),
    ("validator", "roster"),  # the first in line to lead
]


@pytest.mark.parametrize("name, phase", MOMENTS)
def test_a_neuron_killed_in_any_phase_costs_nobody_else_a_round(town, name, phase):
    victim = town.seats[name]
    others = [seat for seat in town.seats.values() if seat is not victim]
    # A fresh entry into the phase, not one that is already over.
    seen = victim.last["phase"]["time"]
    town.wait(
        f"{victim.name} in {phase}",
        lambda: victim.last["phase"]["phase"] == phase and victim.last["phase"]["time"] > seen,
    )
    killed_in = victim.last["phase"]["round"]
    helpers = town.helpers(victim.name)
    town.kill(victim.name)
    town.wait("the victim's helpers gone", lambda: not helpers & _processes().keys())

    restarted = time.time()
    town.start(victim.name)
    town.wait("the victim in a round again", lambda: victim.last["phase"]["time"] > restarted)
    first = victim.last["phase"]["round"]
    town.wait(
        "its part in one of two rounds",
        lambda: any(_took_part(victim, e) for e in victim.rounds if e["round"] >= first) or _last(victim) > first + 1,
    )
    assert any(_took_part(victim, e) for e in victim.rounds if first <= e["round"] <= first + 1)

    upto = max(e["round"] for e in victim.rounds)
    town.wait("the others' word on that round", lambda: all(_last(seat) >= upto for seat in others))
    stories = [{e["round"]: e for e in seat.rounds if killed_in <= e["round"] <= upto} for seat in others]
    for index in range(killed_in, upto + 1):
        told = [story[index] for story in stories]
        assert len({e["digest"] for e in told}) == 1, f"digests differ after round {index}"
        assert all(e["agreed"] for e in told)
    steps = [stories[0][index]["step"] for index in range(killed_in, upto + 1)]
    assert steps == list(range(steps[0], steps[0] + len(steps))), "a round without an outer step"
    assert next(e["digest"] for e in victim.rounds if e["round"] == upto) == stories[0][upto]["digest"]


def test_a_miner_that_is_told_to_stop_leaves_cleanly(town):
    victim = town.seats["miner-3"]
    helpers = town.helpers("miner-3")
    child = town.children["miner-3"]
    town.stage.stop(child, signal.SIGTERM)
    assert child.process.returncode == 0
    town.wait("the victim's helpers gone", lambda: not helpers & _processes().keys())
    others = [seat for seat in town.seats.values() if seat is not victim]
    last = max(map(_last, others))
    town.wait("another round of the rest", lambda: all(_last(seat) > last + 1 for seat in others))
    assert len({seat.rounds[-1]["digest"] for seat in others if _last(seat) == last + 2}) == 1


def test_training_goes_on_without_the_chain_and_weights_are_set_when_it_is_back(town):
    seats = [town.seats[name] for name in ("validator", "miner-0", "miner-1", "miner-2")]
    chain = next(child for child in town.stage.children if child.name == "chain")
    validator = town.seats["validator"]
    town.wait("weights set", lambda: validator.last.get("weights", {}).get("ok"))
    os.kill(chain.process.pid, signal.SIGSTOP)
    try:
        last = max(map(_last, seats))
        town.wait("two rounds without a chain", lambda: all(_last(seat) > last + 2 for seat in seats))
        stories = [{e["round"]: e for e in seat.rounds} for seat in seats]
        for index in (last + 1, last + 2):
            assert len({story[index]["digest"] for story in stories}) == 1
            assert len({story[index]["step"] for story in stories}) == 1
        assert stories[0][last + 2]["step"] > stories[0][last]["step"]
    finally:
        os.kill(chain.process.pid, signal.SIGCONT)
    resumed = time.time()
    town.wait(
        "weights set again",
        lambda: validator.last["weights"]["time"] > resumed and validator.last["weights"]["ok"],
    )


def _last(seat: Seat) -> int:
    return max((e["round"] for e in seat.rounds), default=-1)
