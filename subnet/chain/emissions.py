"""`sn38 emissions`: what every hotkey of a subnet earned, and what that makes per day.

Reads the metagraph as of the last epochs; keeps no history of its own. Alpha amounts, not TAO.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from subnet.chain.client import Chain
from subnet.chain.errors import BlockMissing
from subnet.chain.flags import ChainFlags, add_chain_flags
from subnet.chain.metagraph import Metagraph, Row
from subnet.errors import UserError

DAY = 86_400
WIDE = 130
"""Columns from which full hotkeys fit."""
LEGEND = (
    "role: by its pay in the last epoch; stake, epoch, per day: alpha; inc, div: shares of the miners' and the "
    "validators' reward; vp: validator permit (on a small subnet all with stake); set: weights, blocks ago"
)
EXPLORERS = {"finney": "https://taostats.io/hotkey/{hotkey}"}


@dataclass(frozen=True)
class Earning:
    """One hotkey's earnings."""

    uid: int
    hotkey: str
    role: str
    """validator, miner, both, or - for one that earned nothing and never set weights; `owner` goes before it."""
    stake: float
    incentive: float
    dividends: float
    emission: float
    """Alpha earned in the last epoch, stakers' part included. Without the owner's cut of the whole subnet, and without
    what a hotkey of the owner would have got as a miner, which the chain withholds."""
    earned: float
    """Alpha earned in all the epochs looked at."""
    per_day: float
    """Alpha per day at the rate of the last epoch."""
    permit: bool
    weights_set: int | None
    """Block at which it last set weights, None if never."""
    link: str | None
    """Its page at a public explorer, None where no explorer looks."""


@dataclass(frozen=True)
class Earnings:
    """A subnet's earnings. `rows` by emission, highest first."""

    netuid: int
    network: str
    block: int
    tempo: int
    block_time: float
    epochs: int
    """How many epochs `earned` covers: fewer than asked for where the chain no longer has their state."""
    rows: tuple[Earning, ...]


async def emissions(chain: Chain, netuid: int, epochs: int = 1) -> Earnings:
    """What each registered hotkey earned in the last `epochs` epochs.

    Raises NoSuchSubnet, ChainUnreachable; an endpoint without old states shortens the answer instead.
    """
    newest = await chain.metagraph(netuid)
    history = [newest]
    while len(history) < epochs and history[-1].last_epoch > 0:
        try:
            history.append(await chain.metagraph(netuid, block=history[-1].last_epoch - 1))
        except BlockMissing:
            break
    block_time = await chain.block_time()
    return summarize(history, chain.network, block_time)


def summarize(history: list[Metagraph], network: str, block_time: float) -> Earnings:
    """From the metagraph of each epoch, newest first. A hotkey is followed, not a uid, which may have changed hands."""
    newest = history[0]
    epochs_per_day = DAY / (block_time * newest.tempo) if newest.tempo else 0.0
    link = EXPLORERS.get(network)
    rows = (
        Earning(
            uid=row.uid,
            hotkey=row.hotkey,
            role=_role(row, newest),
            stake=row.stake,
            incentive=row.incentive,
            dividends=row.dividends,
            emission=_paid(row, newest),
            earned=sum(_paid(past.by_hotkey[row.hotkey], past) for past in history if row.hotkey in past.by_hotkey),
            per_day=_paid(row, newest) * epochs_per_day,
            permit=row.permit,
            weights_set=row.last_update if row.last_update > row.registered_at else None,
            link=link.format(hotkey=row.hotkey) if link else None,
        )
        for row in newest.rows
    )
    ranked = tuple(sorted(rows, key=lambda row: (-row.emission, row.uid)))
    return Earnings(newest.netuid, network, newest.block, newest.tempo, block_time, len(history), ranked)


def render(earnings: Earnings, console: Console) -> None:
    """Print the table for people; hotkeys that the console is too narrow for are listed in full below it."""
    several = earnings.epochs > 1
    wide = console.width >= WIDE
    caption = f"alpha, without the owner's cut; epoch: {earnings.tempo} blocks of {earnings.block_time:.2f} s"
    if several:
        caption += f"; earned in {earnings.epochs} epochs"
    title = f"Subnet {earnings.netuid} on {earnings.network}, block {earnings.block}"
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("uid", justify="right")
    table.add_column("hotkey", no_wrap=True)
    table.add_column("role", min_width=9)
    for name in ("stake", "inc", "div", "epoch", *(["earned"] if several else []), "per day"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("vp", no_wrap=True)
    table.add_column("set", justify="right", no_wrap=True)
    for row in earnings.rows:
        name = row.hotkey if wide else f"{row.hotkey[:5]}…{row.hotkey[-3:]}"
        table.add_row(
            str(row.uid),
            Text(name, style=f"link {row.link}" if row.link else ""),
            row.role,
            f"{row.stake:,.1f}",
            f"{row.incentive:.3f}",
            f"{row.dividends:.3f}",
            f"{row.emission:,.2f}",
            *([f"{row.earned:,.2f}"] if several else []),
            f"{row.per_day:,.1f}",
            "yes" if row.permit else "-",
            "never" if row.weights_set is None else f"{earnings.block - row.weights_set:,}",
        )
    console.print(table)
    console.print(LEGEND, style="dim", highlight=False)
    if not wide:
        for row in sorted(earnings.rows, key=lambda row: row.uid):
            console.print(f"uid {row.uid:>3}  {row.hotkey}", highlight=False)


def main(argv: list[str]) -> int:
    """Run `sn38 emissions`; returns the exit status. Raises UserError."""
    parser = argparse.ArgumentParser(prog="sn38 emissions", description="What every hotkey of a subnet earned.")
    add_chain_flags(parser)
    parser.add_argument("--epochs", type=int, default=1, metavar="N", help="sum over the last N epochs (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    flags = ChainFlags.of(args)
    if args.epochs < 1:
        raise UserError(f"--epochs must be at least 1, got {args.epochs}")
    earnings = asyncio.run(_fetch(flags, args.epochs))
    if args.json:
        print(json.dumps(asdict(earnings), indent=2))
    else:
        render(earnings, Console())
    return 0


async def _fetch(flags: ChainFlags, epochs: int) -> Earnings:
    chain = await Chain.connect(flags.network)
    try:
        return await emissions(chain, flags.netuid, epochs)
    finally:
        await chain.close()


def _paid(row: Row, metagraph: Metagraph) -> float:
    if metagraph.owner_coldkey != row.coldkey and metagraph.owner_hotkey != row.hotkey:
        return row.emission
    shares = row.incentive + row.dividends
    return row.emission * row.dividends / shares if shares else row.emission


def _role(row: Row, metagraph: Metagraph) -> str:
    mines = row.incentive > 0
    # A permit says little: on a small subnet every miner that has earned stake gets one.
    validates = row.dividends > 0 or (row.last_update > row.registered_at and not mines)
    role = "both" if validates and mines else "validator" if validates else "miner" if mines else "-"
    if row.hotkey != metagraph.owner_hotkey:
        return role
    return "owner" if role == "-" else f"owner, {role}"
