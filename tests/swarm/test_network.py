"""Real swarms on this machine. Those in `cluster` live for the whole module; what breaks things starts its own."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from subnet.chain.keys import Hotkey, verify
from subnet.config import NodeConfig, RunConfig, first_difference, from_bytes, run_id
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.errors import UserError
from subnet.swarm import membership
from subnet.swarm.blobs import FetchError
from subnet.swarm.errors import SwarmError
from subnet.swarm.identity import ChainCommitment, load_identity, open_binding
from subnet.swarm.network import Swarm
from subnet.swarm.process import is_running
from subnet.swarm.records import BadRecord
from subnet.swarm.wire import WireError

from .conftest import HOTKEYS, KEYS, STRANGER, Row, Rows

LEAVES = [random.Random(i).randbytes(60_000 + i) for i in range(5)]
TREE = Tree(hash_leaves(LEAVES))

Config = Callable[..., NodeConfig]
Do = Callable[[Awaitable[Any]], Any]


async def start(
    config: NodeConfig, key: Hotkey, run: RunConfig, first: Swarm | None = None, bootstrap: Sequence[str] = ()
) -> Swarm:
    """A peer that finds the others through the chain commitment of `first`, or through `bootstrap`."""
    rows = [
        Row(h, first.commitment.pack() if first is not None and h == first.hotkey else None) for h in sorted(HOTKEYS)
    ]
    return await Swarm.start(config, key, run, Rows(rows), lambda: 100.0, bootstrap=bootstrap)


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < limit, "it never came to hold"
        await asyncio.sleep(0.02)


async def fetch(swarm: Swarm, source: str, timeout: float = 10.0) -> list[bytes]:
    return await swarm.fetch_leaves([source], TREE.root, 5, 0, 5, lambda _: 70_000, timeout)


@pytest.fixture(scope="module")
def do(loop_thread: Any) -> Do:
    return lambda work: loop_thread.run(work, 60.0)


@pytest.fixture(scope="module")
def cluster(do: Do, config_of: Config, run: RunConfig) -> Iterator[list[Swarm]]:
    swarms = [do(start(config_of("p0"), KEYS[0], run))]
    swarms += [do(start(config_of(f"p{i}"), KEYS[i], run, swarms[0])) for i in (1, 2)]
    do(until(lambda: all(len(s.peers) == 2 for s in swarms)))
    yield swarms
    for swarm in swarms:
        do(swarm.stop())


def test_everybody_knows_everybody(cluster: list[Swarm]) -> None:
    for swarm in cluster:
        assert {h: p.peer_id for h, p in swarm.peers.items()} == {
            s.hotkey: s.peer_id for s in cluster if s is not swarm
        }
        assert swarm._p2p is not None
        assert swarm._p2p.peer_id.to_base58() == swarm.peer_id
        assert all(swarm._service.known(s.peer_id) for s in cluster if s is not swarm)
        assert not swarm._service.known(swarm.peer_id[:-1])
        commitment = ChainCommitment.unpack(swarm.commitment.pack())
        assert commitment.peer_id == swarm.peer_id
        assert [m + f"/p2p/{swarm.peer_id}" for m in commitment.maddrs] == list(swarm.maddrs)
        assert swarm.alive


def test_records_reach_everybody(do: Do, cluster: list[Swarm]) -> None:
    async def main() -> None:
        bodies = {s.hotkey: {"root": os.urandom(32), "norm": 0.1 + i} for i, s in enumerate(cluster)}
        assert all(await asyncio.gather(*(s.publish("commit", 1, bodies[s.hotkey]) for s in cluster)))
        await cluster[0].publish("part", 1, {"part": 1}, "1")
        await cluster[0].publish("part", 1, {"part": 0}, "0")
        for swarm in cluster:
            commits = await swarm.records("commit", 1)
            assert [r.hotkey for r in commits] == sorted(bodies)
            assert {r.hotkey: r.body for r in commits} == bodies
            assert [r.subkey for r in await swarm.records("part", 1)] == ["0", "1"]
            assert await swarm.records("commit", 0) == []

    do(main())


def test_the_latest_lease_wins_everywhere(do: Do, cluster: list[Swarm]) -> None:
    async def main() -> None:
        for step in range(3):
            assert await cluster[1].publish("digest", 1, {"step": step}, expires_s=100.0 + step)
        assert await cluster[1].publish("digest", 1, {"step": 99}, expires_s=50.0)  # somebody's old lease, as it were
        for swarm in cluster:
            assert [r.body["step"] for r in await swarm.records("digest", 1)] == [2]

    do(main())


def test_a_record_too_large_for_the_dht_never_gets_there(do: Do, cluster: list[Swarm]) -> None:
    with pytest.raises(BadRecord, match="over 2048"):
        do(cluster[0].publish("roster", 1, {"x": bytes(20_000)}))
    assert do(cluster[0].publish("roster", 1, {"x": bytes(1800)}))
    assert [len(r.body["x"]) for r in do(cluster[2].records("roster", 1))] == [1800]


def test_leaves_come_from_whoever_has_them(do: Do, cluster: list[Swarm]) -> None:
    async def main() -> None:
        cluster[0].store.add(TREE.root, LEAVES)
        up, down = cluster[0].traffic.up[KEYS[1].ss58], cluster[1].traffic.down[KEYS[0].ss58]
        assert await fetch(cluster[1], cluster[0].hotkey) == LEAVES
        size = sum(map(len, LEAVES))
        assert cluster[0].traffic.up[KEYS[1].ss58] - up == size
        assert cluster[1].traffic.down[KEYS[0].ss58] - down == size
        sources = [cluster[1].hotkey, KEYS[3].ss58, cluster[0].hotkey]
        assert await cluster[2].fetch_hashes(sources, TREE.root, 5, 10.0) == list(TREE.levels[0])
        with pytest.raises(FetchError, match="unknown root"):
            await cluster[1].fetch_leaves([cluster[2].hotkey], b"?" * 32, 1, 0, 1, lambda _: 9, 0.3)
        with pytest.raises(FetchError, match="is not in the swarm"):
            await fetch(cluster[1], KEYS[3].ss58, 0.3)

    do(main())


def test_a_stranger_gets_nothing_but_a_hello(do: Do, config_of: Config, cluster: list[Swarm], run: RunConfig) -> None:
    async def main() -> None:
        stranger = await start(config_of("stranger"), STRANGER, run, cluster[0])
        try:
            assert not await stranger.publish("commit", 1, {"root": bytes(32)})
            # Its own gate would not hinder a rogue: let it believe in itself, and ask the others to keep its record.
            await stranger.enter_round(1, HOTKEYS | {STRANGER.ss58})
            await stranger.publish("commit", 1, {"root": bytes(32)})
            for swarm in cluster:
                assert STRANGER.ss58 not in {r.hotkey for r in await swarm.records("commit", 1)}
            assert sum(s.rejected["(not registered)", "hotkey not registered"] for s in cluster) > 0
            cluster[0].store.add(TREE.root, LEAVES)
            with pytest.raises(FetchError, match="unauthorised: the hotkey is not registered"):
                await fetch(stranger, cluster[0].hotkey)
            assert STRANGER.ss58 not in cluster[0].traffic.up
            greeting = await stranger.hello(cluster[0].maddrs)
            assert (greeting.protocol, from_bytes(greeting.run_config)) == (run.protocol, run)
            spoken_for = open_binding(greeting.binding, run_id=run_id(run), verify=verify)
            assert (spoken_for.hotkey, spoken_for.peer_id) == (cluster[0].hotkey, cluster[0].peer_id)
            for _ in range(10):
                try:
                    await stranger.hello(cluster[0].maddrs)
                except WireError as error:
                    assert str(error) == "busy"
                    break
            else:
                pytest.fail("hellos are not limited")
        finally:
            await stranger.stop()

    do(main())


def test_the_metagraph_decides_who_counts(do: Do, cluster: list[Swarm]) -> None:
    async def main() -> None:
        expelled = cluster[2].hotkey
        await cluster[2].publish("commit", 2, {"root": bytes(32)})
        assert expelled in {r.hotkey for r in await cluster[0].records("commit", 2)}
        await cluster[0].enter_round(2, HOTKEYS - {expelled})
        assert expelled not in {r.hotkey for r in await cluster[0].records("commit", 2)}
        cluster[0].store.add(TREE.root, LEAVES)
        with pytest.raises(FetchError, match="not registered"):
            await fetch(cluster[2], cluster[0].hotkey)
        await cluster[0].enter_round(2, HOTKEYS)
        assert await fetch(cluster[2], cluster[0].hotkey) == LEAVES
        many = {f"5{i:047d}".replace("0", "A") for i in range(300)}
        await cluster[0].enter_round(40, HOTKEYS | many)
        assert await cluster[0].records("commit", 2) == []
        assert not await cluster[0].publish("commit", 2, {"root": bytes(32)})
        assert await cluster[0].publish("commit", 41, {"root": bytes(32)})
        await cluster[0].enter_round(2, HOTKEYS)

    do(main())


def test_alone_at_first_then_together(
    do: Do, config_of: Config, run: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        late = config_of("late", port)
        peer_id = load_identity(late.home / "identity.key")
        early = await start(config_of("early"), KEYS[1], run, bootstrap=[f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer_id}"])
        try:
            assert await early.publish("commit", 1, {"root": bytes(32)})
            assert len(await early.records("commit", 1)) == 1
            assert not early.peers
            other = await start(late, KEYS[3], run)
            try:
                assert other.peer_id == peer_id
                await until(lambda: KEYS[3].ss58 in early.peers and KEYS[1].ss58 in other.peers)
                assert [r.hotkey for r in await other.records("commit", 1)] == [KEYS[1].ss58]
            finally:
                await other.stop()
            await until(lambda: not early.peers, 10.0)  # long before its lease is over
        finally:
            await early.stop()

    with caplog.at_level(logging.INFO, "subnet.swarm"):
        do(main())
    alone = [r for r in caplog.records if "alone for now" in r.message]
    assert len(alone) == 1
    assert any("joined the swarm" in r.message for r in caplog.records)


def test_another_run_is_named_by_its_first_difference(
    do: Do, config_of: Config, cluster: list[Swarm], run: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    other = dataclasses.replace(run, seed=run.seed + 1)
    difference = first_difference(other, run)

    async def main() -> None:
        swarm = await start(config_of("elsewhere"), KEYS[3], other, cluster[0])
        try:
            assert not swarm.peers
            assert await swarm.records("commit", 1) == []
        finally:
            await swarm.stop()

    with caplog.at_level(logging.WARNING, "subnet.swarm"):
        do(main())
    told = [r.message for r in caplog.records if "another run" in r.message]
    assert len(told) == 1
    assert difference is not None
    assert difference in told[0]


def test_the_port_is_kept_and_one_folder_serves_one_neuron(do: Do, config_of: Config, run: RunConfig) -> None:
    async def main() -> None:
        config = config_of("kept")
        first = await start(config, KEYS[0], run)
        with pytest.raises(UserError, match="another neuron uses the state folder"):
            await start(config, KEYS[0], run)
        address = first.maddrs
        taken = dataclasses.replace(config_of("taken"), port=int(address[0].split("/")[4]))
        with pytest.raises(UserError, match="cannot listen"):
            await start(taken, KEYS[1], run)
        await first.stop()
        again = await start(config, KEYS[0], run)
        assert again.maddrs == address
        await again.stop()

    do(main())


@pytest.mark.parametrize("known_by", ["its record", "the chain"])
def test_a_hotkey_that_runs_elsewhere_does_not_start_again(
    do: Do, config_of: Config, cluster: list[Swarm], run: RunConfig, known_by: str
) -> None:
    running = cluster[1]
    first = cluster[0] if known_by == "its record" else running

    async def main() -> None:
        with pytest.raises(UserError, match=f"{running.hotkey} is already running as peer {running.peer_id}; .* stop"):
            await start(config_of("twin"), KEYS[1], run, first)

    do(main())


def test_what_an_earlier_identity_left_behind_does_not_stop_a_start(
    do: Do, config_of: Config, cluster: list[Swarm], run: RunConfig
) -> None:
    async def main() -> None:
        former = await start(config_of("former"), KEYS[3], run, cluster[0])
        await until(lambda: KEYS[3].ss58 in cluster[0].peers)
        await former.stop()
        # Another state folder, so another peer id; the old one's record has most of its lease to go.
        rows = [Row(cluster[0].hotkey, cluster[0].commitment.pack()), Row(KEYS[3].ss58, former.commitment.pack())]
        everybody = Rows([*rows, *(Row(h) for h in sorted(HOTKEYS - {row.hotkey for row in rows}))])
        again = await Swarm.start(config_of("anew"), KEYS[3], run, everybody, lambda: 100.0)
        try:
            assert again.peer_id != former.peer_id
            assert again._book.own_on_chain is not None
        finally:
            await again.stop()

    do(main())


def test_a_peer_that_now_speaks_for_another_hotkey_stops_nobody(
    do: Do, config_of: Config, cluster: list[Swarm], run: RunConfig
) -> None:
    async def main() -> None:
        # By the chain KEYS[3] was last at the peer id that speaks for KEYS[1] now.
        moved = Row(KEYS[3].ss58, cluster[1].commitment.pack())
        swarm = await Swarm.start(config_of("moved"), KEYS[3], run, Rows([moved]), lambda: 100.0)
        await swarm.stop()

    do(main())


def test_a_hotkey_that_is_started_a_second_time_unseen_is_told(
    do: Do, config_of: Config, run: RunConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "REFRESH_S", 3.0)
    monkeypatch.setattr(membership, "LOOK_AROUND_S", 0.6)
    monkeypatch.setattr(membership, "CLOCK_SKEW_S", 0.0)

    def told() -> set[str]:
        said = [r.message for r in caplog.records if "also running as peer" in r.message]
        return {message.split("as peer ")[1].split(";")[0] for message in said}

    async def main() -> None:
        twins = [await start(config_of(f"twin-{i}"), KEYS[2], run) for i in range(2)]
        bridge = await start(config_of("bridge"), KEYS[0], run, bootstrap=[m for t in twins for m in t.maddrs])
        try:
            await until(lambda: bool(told()))
            assert told() <= {t.peer_id for t in twins}
        finally:
            for swarm in (bridge, *twins):
                await swarm.stop()

    with caplog.at_level(logging.ERROR, "subnet.swarm"):
        do(main())


def test_without_its_daemon_a_swarm_says_so(do: Do, config_of: Config, run: RunConfig) -> None:
    async def main() -> None:
        swarm = await start(config_of("broken"), KEYS[0], run)
        dht, p2pd, sockets = swarm._control._dht.pid, swarm._control.p2pd, swarm._claim.sockets
        os.kill(p2pd, signal.SIGKILL)
        await until(lambda: not swarm.alive)
        with pytest.raises(SwarmError, match="has ended"):
            await swarm.records("commit", 1)
        with pytest.raises(SwarmError):
            await swarm.publish("commit", 1, {"root": bytes(32)})
        await swarm.stop()
        assert not is_running(dht)
        assert not is_running(p2pd)
        assert not sockets.exists()

    do(main())


def test_stop_leaves_nothing(config_of: Config, run: RunConfig) -> None:
    async def main() -> None:
        swarm = await start(config_of("brief"), KEYS[0], run)
        dht, p2pd, sockets = swarm._control._dht.pid, swarm._control.p2pd, swarm._claim.sockets
        assert is_running(dht)
        assert is_running(p2pd)
        assert sockets.stat().st_mode & 0o077 == 0
        await swarm.stop()
        assert not is_running(dht)
        assert not is_running(p2pd)
        assert not sockets.exists()
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    asyncio.run(main())
