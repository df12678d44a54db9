"""The share of its time that a miner trains, on slow links, with the exchange after training and beside it.

    python benchmarks/utilisation.py

MINERS real miners of the 10 M preset, each in a network namespace behind a link of 100 Mbit/s each way, 50 ms from each
other (emulated, see exchange_study/network.py), int8. The same run twice but for `rounds.delay`. Inner steps without
end, so that the phases alone decide how long is trained. Utilisation: seconds in inner steps by those of the round.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
from pathlib import Path

from bench import Figures, Theatre, budget, main, say, swarm, write_run
from exchange_study.network import Link, Network
from netns import become_root, ip

from subnet.config import RunConfig, load_run
from subnet.demo.board import Seat
from subnet.errors import UserError
from subnet.exchange.window import Window

MINERS = 3
ROUNDS = 5
SPARE_ROUNDS = 5
LINK = Link(rate=100e6, delay=0.025)
MIN_GAIN = 1.2
"""Utilisation with overlap against without."""
START_SECONDS = 120.0
ROUND_SECONDS = 90.0
CHAIN_NET = "10.38.0"
_INSIDE = "inside"


def shape(delay: int) -> RunConfig:
    """The run: 12 s of training, then 8 s in which contributions of 10 MB go round."""
    demo, run = load_run("demo"), load_run("10m")
    rounds = dataclasses.replace(
        demo.rounds, blocks=80, train_end=48, commit_end=52, roster_end=56, scatter_end=66, gather_end=76, delay=delay
    )
    train = dataclasses.replace(run.train, inner_steps=1_000, batch_size=1, micro_batch=1, decay_steps=100_000)
    return dataclasses.replace(run, name="bench", data=demo.data, codec=demo.codec, rounds=rounds, train=train)


async def measure() -> tuple[bool, Figures]:
    """Utilisation without overlap and with it, medians over miners and whole rounds."""
    if sys.argv[1:] != [_INSIDE]:
        raise UserError("this needs Linux with iproute2, unshare, /dev/net/tun, and user namespaces")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    ip("link set lo up")
    ip("link add chain type bridge")
    ip("link set chain up")
    ip(f"address add {CHAIN_NET}.250/24 dev chain")
    shares = {}
    for delay in (0, 1):
        shares[delay], lost = await play(shape(delay))
        say(f"delay {delay}: {shares[delay]:.3f} ({lost} rounds were not whole)")
    gain = budget(shares[1] / shares[0], MIN_GAIN, at_least=True)
    link = {"mbit_per_second": LINK.rate / 1e6, "rtt_ms": 2e3 * LINK.delay}
    rounds = dataclasses.asdict(shape(0).rounds)
    utilisation = {f"delay_{delay}": round(share, 3) for delay, share in shares.items()}
    figures = {"network": link, "miners": MINERS, "rounds": rounds, "utilisation": utilisation, "gain": gain}
    return bool(gain["ok"]), figures


async def play(run: RunConfig) -> tuple[float, int]:
    """The median utilisation of ROUNDS rounds in which everybody was averaged, and how many others there were."""

    def seats(out: Path) -> list[Seat]:
        return [Seat(f"miner-{i + 1}", "miner", out / f"miner-{i + 1}", "") for i in range(MINERS)]

    network = Network(MINERS, LINK)
    try:
        for peer in range(MINERS):
            _reach_chain(peer)
        async with swarm(seats, host=f"{CHAIN_NET}.250") as theatre:
            path = write_run(run, theatre.stage.out / "bench.toml")
            for peer, seat in enumerate(theatre.seats):
                with network.inside(peer):
                    theatre.stage.start_neuron(seat, path, "--no-wandb", "--swarm.host", network.address(peer))
            return await _utilisation(theatre, run)
    finally:
        for peer in range(MINERS):
            ip(f"link del c{peer}")
        network.close()


async def _utilisation(theatre: Theatre, run: RunConfig) -> tuple[float, int]:
    shares: list[float] = []
    number, lost = (await theatre.round_event(theatre.seats[0], -1, START_SECONDS))["round"] + 1, 0
    while len(shares) < ROUNDS * MINERS:
        number += 1
        events = [await theatre.round_event(seat, number - 1, ROUND_SECONDS) for seat in theatre.seats]
        if not all(e["round"] == number and e["averaged"] == MINERS and not e["missing"] for e in events):
            lost += 1
            if lost > SPARE_ROUNDS:
                raise UserError(f"{lost} rounds were not whole")
            continue
        window = Window.of_round(run.rounds, number)
        seconds = await theatre.moment(window.end) - await theatre.moment(window.start)
        shares += [e["seconds"] / seconds for e in events]
        say(f"round {number}: " + ", ".join(f"{share:.3f}" for share in shares[-MINERS:]))
    return statistics.median(shares), lost


def _reach_chain(peer: int) -> None:
    """A wire of its own to the chain, which is not on the slow network."""
    ip(f"link add c{peer} type veth peer name chain netns p{peer}")
    ip(f"-n p{peer} address add {CHAIN_NET}.{peer + 1}/24 dev chain")
    ip(f"-n p{peer} link set chain up")
    ip(f"link set c{peer} master chain up")


if __name__ == "__main__":
    if sys.argv[1:] != [_INSIDE]:
        become_root(__file__, _INSIDE)
    sys.exit(main(measure))
