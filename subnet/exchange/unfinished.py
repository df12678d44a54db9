"""A state on its way from what this peer holds to what most hold: leaf by leaf, and kept when an attempt fails.

Not a checkpoint: its leaves are of several outer steps, and nothing trains on it. Every leaf is checked against the
majority's hashes again before it counts, so what a disk or a crash did to it costs bytes only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from subnet.diloco.layout import Layout
from subnet.diloco.state import OuterState

UNKNOWN = -1


@dataclass
class Unfinished:
    """`state` holds the values; `steps`, int64 `[2 leaves]`, the outer step each leaf is of, or UNKNOWN."""

    state: OuterState
    steps: Tensor

    @classmethod
    def of(cls, state: OuterState) -> Unfinished:
        """All of one step; a copy."""
        return cls(state.clone(), torch.full((state.num_leaves,), state.step, dtype=torch.int64))

    def refresh(self, mine: OuterState) -> None:
        """Take over from `mine` the leaves of which it has a later step."""
        for leaf in (self.steps < mine.step).nonzero().flatten().tolist():
            self.state.set_leaf(leaf, mine.leaf(leaf))
            self.steps[leaf] = mine.step

    def step_of(self, leaf: int) -> int:
        """Of the parameters' leaf `leaf` and of the momentum's, if that is one step; else UNKNOWN."""
        theta, momentum = int(self.steps[leaf]), int(self.steps[leaf + self.state.layout.num_leaves])
        return theta if theta == momentum else UNKNOWN

    def set_leaf(self, leaf: int, data: bytes, step: int) -> None:
        """Raises CodecError, with nothing changed, for a wrong size or a value not finite."""
        self.state.set_leaf(leaf, data)
        self.steps[leaf] = step

    def save(self, file: Path) -> None:
        """Write it whole or not at all. Raises OSError."""
        partial = file.with_suffix(".partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        save_file({"theta": self.state.theta, "momentum": self.state.momentum, "steps": self.steps}, partial)
        os.replace(partial, file)

    @classmethod
    def load(cls, file: Path, layout: Layout) -> Unfinished | None:
        """What was saved, or None if there is nothing of this layout."""
        try:
            tensors = load_file(file)
            steps = tensors["steps"]
            state = OuterState(tensors["theta"], tensors["momentum"], 0, layout)
        except (OSError, SafetensorError, KeyError, ValueError):
            return None
        if steps.shape != (state.num_leaves,) or steps.dtype != torch.int64:
            return None
        return cls(state, steps)
