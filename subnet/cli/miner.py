"""`sn38 miner` and `python neurons/miner.py`: the flags of a miner, and its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subnet.cli.process import run_neuron

if TYPE_CHECKING:
    from subnet.neuron import Neuron


async def mine(neuron: Neuron) -> None:
    """Build the model and run the round loop."""
    from subnet.miner.loop import Miner

    await Miner(neuron).run()


def main(argv: list[str]) -> int:
    """Run a miner until SIGTERM or Ctrl-C; 2 with one line for what the user can mend."""
    return run_neuron("miner", mine, argv)
