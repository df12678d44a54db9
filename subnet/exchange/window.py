"""The phases of one round as absolute block numbers.

A round is `blocks` long and starts at a multiple of it, so every peer derives the same windows from the block
height alone. Nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from subnet.config import RoundConfig


@dataclass(frozen=True)
class Window:
    """Block deadlines of one round; each phase ends just before its deadline block."""

    round: int
    start: int
    train_end: int
    commit_end: int
    roster_end: int
    scatter_end: int
    gather_end: int
    end: int

    @staticmethod
    def of_round(rounds: RoundConfig, index: int) -> Window:
        start = index * rounds.blocks
        return Window(
            round=index,
            start=start,
            train_end=start + rounds.train_end,
            commit_end=start + rounds.commit_end,
            roster_end=start + rounds.roster_end,
            scatter_end=start + rounds.scatter_end,
            gather_end=start + rounds.gather_end,
            end=start + rounds.blocks,
        )

    @staticmethod
    def at(rounds: RoundConfig, block: float) -> Window:
        """The window that contains `block`."""
        return Window.of_round(rounds, int(block) // rounds.blocks)
