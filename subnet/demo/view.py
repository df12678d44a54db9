"""The live table of the demo, and its plain form for a log: one line a round."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from subnet.demo.board import Board, Seat
from subnet.progress import size


def table(board: Board, seconds_left: float, note: str) -> Group:
    """Round, phase, loss, peers, bytes, digest, weight and emission of every neuron."""
    rows = Table(expand=True, header_style="bold", border_style="dim")
    for column in ("neuron", "uid", "round", "phase", "loss", "averaged", "up/down", "digest", "incentive", "earned"):
        rows.add_column(column, justify="left" if column in ("neuron", "phase", "digest") else "right", no_wrap=True)
    digests = board.digests()
    common = max(set(digests.values()), key=list(digests.values()).count) if digests else ""
    for seat in board.seats:
        rows.add_row(*_cells(board, seat, common))
    curve = board.held_out()
    loss = f"held-out loss {curve[0][1]:.3f} -> {curve[-1][1]:.3f}" if curve else "held-out loss: after the first round"
    title = Text(f"block {board.block}   {loss}   {max(0, seconds_left):.0f} s left   {note}", style="bold")
    return Group(title, rows)


def line(board: Board, event: dict) -> str:
    """One finished round of one neuron, or one round's scores, for output that is not a terminal."""
    seat = next(s for s in board.seats if s.hotkey == event["hotkey"])
    if event["event"] == "scores":
        return f"round {event['round']:>4}  {seat.name:<12} held-out loss {event['held_out_loss']:.3f}"
    loss = f"loss {event['loss']:.3f}  " if event.get("loss") is not None else ""
    return (
        f"round {event['round']:>4}  {seat.name:<12} step {event['step']:>3}  {loss}averaged {event['averaged']}  "
        f"digest {event['digest'][:8]}  up {size(event['up'])}  down {size(event['down'])}"
    )


def _cells(board: Board, seat: Seat, common: str) -> list[str | Text]:
    phase, done, pay = seat.last.get("phase"), seat.last.get("round"), board.pay.get(seat.hotkey)
    if phase is None:
        return [seat.name, str(pay.uid) if pay else "", "", "starting" if seat.home.exists() else "later", *[""] * 6]
    digest = Text("")
    if done is not None:
        style = "green" if done["digest"] == common else "yellow"
        digest = Text(done["digest"][:8], style=style)
    loss = done.get("loss") if done else None
    return [
        seat.name,
        str(pay.uid) if pay else "",
        str(phase["round"]),
        phase["phase"],
        f"{loss:.3f}" if loss is not None else "",
        str(done["averaged"]) if done else "",
        f"{size(done['up'])}/{size(done['down'])}" if done else "",
        digest,
        f"{(pay.dividends if seat.role == 'validator' else pay.incentive):.3f}" if pay else "",
        f"{pay.earned:.2f}" if pay else "",
    ]
