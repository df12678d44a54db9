"""`sn38 validator` and `python neurons/validator.py`: the flags of a validator, and its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subnet.cli.process import run_neuron

if TYPE_CHECKING:
    from subnet.neuron import Neuron


async def validate(neuron: Neuron) -> None:
    """Build the model and run the round loop."""
    from subnet.validator.loop import Validator

    await Validator(neuron).run()


def main(argv: list[str]) -> int:
    """Run a validator until SIGTERM or Ctrl-C; 2 with one line for what the user can mend."""
    return run_neuron("validator", validate, argv)
