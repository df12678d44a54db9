"""A miner that trains nothing and publishes noise of a plausible size, to show that it is not paid.

It takes part in everything else (commitment, reducing, digests), so that only the scoring can tell it apart.
"""

from __future__ import annotations

import sys

import torch

from subnet.cli.process import run_neuron
from subnet.diloco.inner import InnerResult
from subnet.exchange.round import Round
from subnet.miner.loop import Miner
from subnet.miner.training import Training
from subnet.neuron import Neuron

NOISE = 2e-3
"""Standard deviation of the noise: about that of an honest miner's pseudo-gradient in the demo."""


class Noise(Training):
    """Waits out the training phase, then gives Gaussian noise as the parameters' change."""

    async def round(self, round_: Round) -> InnerResult:
        neuron, train = self.neuron, self.neuron.run.train
        generator = torch.Generator().manual_seed(round_.window.round)
        noise = torch.randn(neuron.layout.numel, generator=generator) * NOISE
        self.trainer.load(neuron.state.theta + noise)
        await neuron.wait_for(round_.window.train_end)
        tokens = train.inner_steps * train.batch_size * neuron.run.model.seq_len
        return InnerResult(steps=train.inner_steps, tokens=tokens, losses=[])

    def begin_ahead(self, round_: Round) -> None:
        """There is no work to go on with."""


async def ride(neuron: Neuron) -> None:
    """Run the free-rider's round loop."""
    await Miner(neuron, Noise(neuron)).run()


def main(argv: list[str]) -> int:
    """Run a free-rider until SIGTERM."""
    return run_neuron("miner", ride, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
