"""Values that are the same bits on every machine, and a switch of torch's threads."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch


def exact_values(n: int, seed: int, scale: float = 2.0**-10) -> torch.Tensor:
    """fp32 `[n]` from integers of a Philox stream times a power of two: no rounding anywhere."""
    words = np.random.Philox(key=seed).random_raw(n)
    integers = (words >> np.uint64(40)).astype(np.int64) - 2**23
    return torch.from_numpy((integers * 2.0**-23 * scale).astype(np.float32))


@pytest.fixture
def values() -> Callable[..., torch.Tensor]:
    return exact_values


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
