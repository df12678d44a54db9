"""Bytes that really cross the network in a round, for a whole swarm, against the parameters they carry.

    python benchmarks/payload.py

Every peer lives in a network namespace of its own, with one wire to a switch for the swarm and one to another for the
chain, and the wires count (Linux with iproute2 and unprivileged user namespaces; segmentation offload is off, so a
packet is a packet). Reported are the bytes in the sockets: those on the swarm's wires less the Ethernet, IP and TCP
headers. A phase's bytes are all that everybody sends from its beginning to its end: Merkle hashes, framing, encryption,
DHT look-ups and records are in. Upkeep between the phases is told apart, and is in the bytes per miner and round. The
only change to the neurons: nobody gathers before the scatter's deadline, so that the two can be told apart by time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import Figures, Theatre, budget, main, say, swarm, write_run
from netns import become_root, inside, ip

from subnet.cli.process import run_neuron
from subnet.config import RunConfig, load_run
from subnet.demo.board import Seat
from subnet.errors import UserError
from subnet.exchange.round import Round, Update
from subnet.exchange.window import Window
from subnet.miner.loop import Miner
from subnet.model.presets import parameter_count
from subnet.neuron import Neuron
from subnet.validator.loop import Validator

MAX_BYTES_PER_PARAMETER = 1.1
MAX_SHARE_OF_STATE = 1.05
MINERS = 3
ROUNDS = 5
MAX_ROUNDS = 12
BLOCKS = 96
SCATTER_END, GATHER_END = 66, 84
SLACK_BLOCKS = 2
"""Blocks before the scatter's deadline at which the gather begins to be counted: the peers' clocks differ a little."""
FP32_STATE_BYTES = 8
"""Of the state, per parameter: itself and its momentum."""
START_SECONDS = 120.0
ROUND_SECONDS = 90.0
LOOK_SECONDS = 0.05

CHAIN_NET, SWARM_NET = "10.38.0", "10.39.0"
HEADER_BYTES = 14 + 20 + 32
"""Ethernet, IPv4 and TCP (with time stamps) in front of every segment."""
_INSIDE = "inside"


@dataclasses.dataclass(frozen=True)
class Wire:
    """Bytes and packets that a peer has sent (`up`) and received (`down`) on the swarm's network so far."""

    up: int
    down: int
    up_packets: int
    down_packets: int

    def __sub__(self, other: Wire) -> Wire:
        return Wire(*(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    @property
    def sent(self) -> int:
        """Bytes put into sockets."""
        return self.up - HEADER_BYTES * self.up_packets

    @property
    def received(self) -> int:
        """Bytes read from sockets."""
        return self.down - HEADER_BYTES * self.down_packets


class Network:
    """Two switches in this process's own network namespace, and for each peer a namespace with a wire to both."""

    def __init__(self) -> None:
        ip("link set lo up")
        for name in ("chain", "swarm"):
            ip(f"link add {name} type bridge")
            ip(f"link set {name} up")
        ip(f"address add {CHAIN_NET}.1/24 dev chain")
        self.addresses: dict[str, str] = {}
        self._history: list[tuple[float, dict[str, Wire]]] = []

    def attach(self, name: str) -> str:
        """Give a peer its namespace; returns the address it is reached by in the swarm."""
        number = len(self.addresses) + 2
        ip(f"netns add {name}")
        ip(f"-n {name} link set lo up")
        for switch, net in (("chain", CHAIN_NET), ("swarm", SWARM_NET)):
            ip(f"link add {switch}{number} type veth peer name {switch} netns {name}")
            ip(f"-n {name} link set {switch} gso_max_segs 1")
            ip(f"-n {name} address add {net}.{number}/24 dev {switch}")
            ip(f"-n {name} link set {switch} up")
            ip(f"link set {switch}{number} master {switch} up")
        self.addresses[name] = f"{SWARM_NET}.{number}"
        return self.addresses[name]

    def read(self) -> dict[str, Wire]:
        """Every peer's counters, from the switch's end of its wire."""
        rows = (line.split(":") for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:])
        counts = {name.strip(): list(map(int, values.split())) for name, values in rows}
        wires = {}
        for name, address in self.addresses.items():
            c = counts["swarm" + address.rpartition(".")[2]]
            wires[name] = Wire(up=c[0], down=c[8], up_packets=c[1], down_packets=c[9])
        return wires

    async def watch(self) -> None:
        """Keep the counters' history until cancelled."""
        while True:
            self._history.append((time.time(), self.read()))
            await asyncio.sleep(LOOK_SECONDS)

    def between(self, start: float, stop: float) -> dict[str, Wire]:
        """What crossed each peer's wire from one moment to another (seconds, wall)."""
        first = next(wires for when, wires in reversed(self._history) if when <= start)
        last = next(wires for when, wires in self._history if when >= stop)
        nothing = Wire(0, 0, 0, 0)
        return {name: wire - first.get(name, nothing) for name, wire in last.items()}


@dataclasses.dataclass(frozen=True)
class Count:
    """One whole round: bytes in sockets, per parameter and copy, and per miner."""

    scatter: float
    """Parts of contributions, pulled by the reducers: N - 1 copies among N miners."""
    scoring: float
    """Whole contributions of the round before, pulled by the validator: N copies."""
    gather: float
    """Reduced parts, pulled by everybody: N - 1 copies among the miners, one by the validator."""
    upkeep: float
    """What a peer sends per second between these phases: the DHT and libp2p keeping each other alive."""
    sent: float
    received: float
    on_wire: float
    """Sent and received by a miner, headers included."""
    ring: float
    """What a miner would send and receive in fp32 ring all-reduces of every inner step, headers excluded."""


async def measure() -> tuple[bool, Figures]:
    """Whole rounds of a swarm of MINERS miners and a validator, then a miner that joins."""
    if sys.argv[1:] != [_INSIDE]:
        raise UserError("this needs Linux with iproute2, unshare, and user namespaces that one may create")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    network = Network()
    run = load_run("demo")
    rounds = dataclasses.replace(run.rounds, blocks=BLOCKS, scatter_end=SCATTER_END, gather_end=GATHER_END)
    run = dataclasses.replace(run, name="bench", rounds=rounds)
    parameters = parameter_count(run.model)

    def seats(out: Path) -> list[Seat]:
        names = [*(f"miner-{i + 1}" for i in range(MINERS)), "validator", "joiner"]
        return [Seat(name, "validator" if name == "validator" else "miner", out / name, "") for name in names]

    async with swarm(seats, host=f"{CHAIN_NET}.1") as theatre:
        path = write_run(run, theatre.stage.out / "bench.toml")
        for seat in theatre.seats:
            network.attach(seat.name)
        watcher = asyncio.create_task(network.watch())
        try:
            *cast, joiner = theatre.seats
            for seat in cast:
                _start(theatre, network, seat, path)
            counts = await _whole_rounds(theatre, network, run, cast)
            share, leaves = await _join(theatre, network, joiner, path, FP32_STATE_BYTES * parameters)
        finally:
            watcher.cancel()

    def median(field: str) -> float:
        return statistics.median(getattr(count, field) for count in counts)

    figures: Figures = {
        "scatter_bytes_per_parameter": budget(median("scatter"), MAX_BYTES_PER_PARAMETER),
        "scoring_bytes_per_parameter": budget(median("scoring"), MAX_BYTES_PER_PARAMETER),
        "gather_bytes_per_parameter": budget(median("gather"), MAX_BYTES_PER_PARAMETER),
        "joiner_download_per_state": {**budget(share, MAX_SHARE_OF_STATE), "leaves": leaves},
    }
    per_round = {f: round(median(f)) for f in ("sent", "received", "on_wire", "ring")}
    upkeep = {"upkeep_bytes_per_peer_and_second": round(median("upkeep"))}
    less = round(median("ring") / (median("sent") + median("received")), 1)
    ok = all(figure["ok"] for figure in figures.values())
    shape = {"parameters": parameters, "miners": MINERS, "inner_steps": run.train.inner_steps, "rounds": len(counts)}
    return ok, {**shape, **figures, **upkeep, "bytes_per_miner_and_round": {**per_round, "times_less_than_ring": less}}


async def _whole_rounds(theatre: Theatre, network: Network, run: RunConfig, cast: list[Seat]) -> list[Count]:
    """ROUNDS rounds in which everybody's contribution was averaged and nothing was lost, nor in the one before."""
    counts: list[Count] = []
    started = (await theatre.round_event(cast[0], -1, START_SECONDS))["round"]
    whole = False
    for number in range(started + 1, started + 1 + MAX_ROUNDS):
        events = {seat.name: await theatre.round_event(seat, number - 1, ROUND_SECONDS) for seat in cast}
        before = whole
        whole = all(e["round"] == number and e["averaged"] == MINERS and not e["missing"] for e in events.values())
        if not (before and whole):
            say(f"round {number} does not count: it or the one before was not whole")
            continue
        counts.append(await _count(theatre, network, run, number, cast))
        say(f"round {number}: {counts[-1]}")
        if len(counts) == ROUNDS:
            return counts
    raise UserError(f"only {len(counts)} of {MAX_ROUNDS} rounds were whole")


async def _count(theatre: Theatre, network: Network, run: RunConfig, number: int, cast: list[Seat]) -> Count:
    window, parameters = Window.of_round(run.rounds, number), parameter_count(run.model)

    def last(event: str, round_: int, **values: str) -> float:
        """When the last neuron that says so said it."""
        said = [e for seat in cast for e in theatre.events[seat.name] if e["event"] == event and e["round"] == round_]
        return max(e["time"] for e in said if values.items() <= e.items())

    start, end = await theatre.moment(window.start), await theatre.moment(window.end)
    await asyncio.sleep(2 * LOOK_SECONDS)
    phases = {
        "scoring": (start, last("scores", number - 1)),
        "scatter": (await theatre.moment(window.commit_end), last("phase", number, phase="gather")),
        "gather": (await theatre.moment(window.scatter_end - SLACK_BLOCKS), last("phase", number, phase="apply")),
    }
    sent = {name: sum(wire.sent for wire in network.between(*edges).values()) for name, edges in phases.items()}
    whole = network.between(start, end)
    between_phases = end - start - sum(b - a for a, b in phases.values())
    upkeep = (sum(wire.sent for wire in whole.values()) - sum(sent.values())) / between_phases / len(cast)
    mine = [wire for name, wire in whole.items() if name.startswith("miner")]
    trained = [e for seat in cast for e in theatre.events[seat.name] if e["event"] == "round" and e.get("steps")]
    steps = statistics.mean(e["steps"] for e in trained if e["round"] == number)
    return Count(
        scatter=sent["scatter"] / ((MINERS - 1) * parameters),
        scoring=sent["scoring"] / (MINERS * parameters),
        gather=sent["gather"] / (MINERS * parameters),
        upkeep=upkeep,
        sent=statistics.mean(wire.sent for wire in mine),
        received=statistics.mean(wire.received for wire in mine),
        on_wire=statistics.mean(wire.up + wire.down for wire in mine),
        ring=2 * 2 * (MINERS - 1) / MINERS * 4 * parameters * steps,
    )


async def _join(theatre: Theatre, network: Network, joiner: Seat, path: str, state_bytes: int) -> tuple[float, int]:
    """What a newcomer receives from its start until it holds the state, against the state; and how many leaves."""
    started = time.time()
    _start(theatre, network, joiner, path)
    repair = await theatre.event(joiner, lambda e: e["event"] == "repair", "the state", START_SECONDS)
    await asyncio.sleep(2 * LOOK_SECONDS)
    wire = network.between(started, repair["time"])[joiner.name]
    say(f"joiner: {repair}, {wire}")
    return wire.received / state_bytes, repair["leaves"]


def _start(theatre: Theatre, network: Network, seat: Seat, run: str) -> None:
    flags = [*theatre.stage.flags(seat, run), "--no-wandb", "--swarm.host", network.addresses[seat.name]]
    with inside(seat.name):
        theatre.stage.spawn(seat.name, [sys.executable, __file__, seat.role, *flags])


async def paced(neuron: Neuron) -> None:
    """A miner or validator as it is, except that it gathers only when everybody's scatter is over."""
    gather = neuron.exchange.gather

    async def later(round_: Round, *rest: Any) -> Update:
        await neuron.clock.wait_until(round_.window.scatter_end)
        return await gather(round_, *rest)

    neuron.exchange.gather = later  # type: ignore[assignment,method-assign]
    await (Miner(neuron) if neuron.role == "miner" else Validator(neuron)).run()


if __name__ == "__main__":
    if sys.argv[1:2] in (["miner"], ["validator"]):
        sys.exit(run_neuron(sys.argv[1], paced, sys.argv[2:]))
    if sys.argv[1:] != [_INSIDE]:
        become_root(__file__, _INSIDE)
    sys.exit(main(measure))
