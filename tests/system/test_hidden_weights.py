"""Miner and validator processes as they are, on a subnet whose owner has weights hidden."""

from __future__ import annotations

import asyncio
import io
import signal
from pathlib import Path
from typing import Any

import bittensor as bt
import pytest
from rich.console import Console

from subnet.chain import wallets
from subnet.chain.client import Chain
from subnet.cli.demo import found
from subnet.demo.board import Board, Seat
from subnet.demo.stage import NETUID, Stage
from subnet.validator.reveal import load

pytestmark = pytest.mark.slow

TEMPO = 144
"""36 seconds: long enough for a validator to come back in the epoch in which it must reveal."""
PATIENCE = 400.0


def test_weights_appear_after_the_reveal_period_though_the_validator_was_killed_in_between(tmp_path: Path) -> None:
    stage = Stage(tmp_path, block_time=0.25, tempo=TEMPO)
    names = ["validator", "miner-0", "miner-1"]
    board = Board([Seat(name, name.partition("-")[0], tmp_path / name, "") for name in names])
    seats = {seat.name: seat for seat in board.seats}
    commits = tmp_path / "validator" / "commits.json"

    async def act(chain: Chain) -> None:
        await found(chain, stage, board.seats, Console(file=io.StringIO()))
        owner = wallets.create_wallet(stage.wallets, "owner")
        hide = bt.calls.AdminUtils.sudo_set_commit_reveal_weights_enabled(netuid=NETUID, enabled=True)
        await chain.submit(hide, owner, "coldkey")
        children = {name: stage.start_neuron(seat, "demo", "--no-wandb") for name, seat in seats.items()}
        uid = (await chain.metagraph(NETUID)).uid_of(seats["validator"].hotkey)

        async def storage(item: str, *keys: Any) -> Any:
            return await chain.query(("SubtensorModule", item), [NETUID, *keys])

        clock = await chain.clock()
        while not await storage("WeightCommits", seats["validator"].hotkey):
            _, fallen = await clock.wait_until(clock.block() + 4), stage.fallen()
            assert not fallen, fallen[0].tail()
        stage.stop(children["validator"], signal.SIGKILL)
        (entry,) = load(commits)
        assert set(entry.sealed.uids) == {(await chain.metagraph(NETUID)).uid_of(seats[n].hotkey) for n in names[1:]}
        assert await storage("Weights", uid) == []
        made = await storage("SubnetEpochIndex")
        stage.start_neuron(seats["validator"], "demo", "--no-wandb")
        while not (shown := await storage("Weights", uid)):
            _, fallen = await clock.wait_until(clock.block() + 4), stage.fallen()
            assert not fallen, fallen[0].tail()
        assert await storage("SubnetEpochIndex") > made
        assert [target for target, _ in shown] == list(entry.sealed.uids)
        while not sum(row.incentive for row in (await chain.metagraph(NETUID)).rows):
            await clock.wait_until(clock.block() + 4)

    async def play() -> None:
        chain = await Chain.connect(stage.endpoint)
        try:
            await asyncio.wait_for(act(chain), PATIENCE)
        finally:
            await chain.close()

    try:
        stage.start_chain()
        asyncio.run(play())
    finally:
        stage.close()
