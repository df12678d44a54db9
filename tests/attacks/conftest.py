"""Cells of the arena, each played once for all tests that look at it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch

from subnet.attack.season import Season, Setting, play


@pytest.fixture(scope="session")
def season() -> Callable[[Setting], Season]:
    torch.set_num_threads(1)
    return lru_cache(play)
