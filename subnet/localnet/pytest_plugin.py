"""The embedded chain for the tests of any subnet: a pytest plugin.

    pytest_plugins = ["subnet.localnet.pytest_plugin"]      # in the topmost conftest.py, or -p on the command line

    def test_something(localnet):
        client = bt.Client(localnet.endpoint)

Not an entry point: a plugin that pytest loads by itself would run in every project of the environment it is installed
in. Loading it imports neither the chain nor the SDK, and a chain starts only when a test asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from subnet.localnet import Localnet


@pytest.fixture(scope="session")
def localnet_options() -> dict[str, Any]:
    """What `localnet` is started with, for a conftest.py to override: the keyword arguments of `Localnet`."""
    return {"block_time": 0.05, "tempo": 20, "weights_rate_limit": 5}


@pytest.fixture(scope="session")
def start_localnet() -> Iterator[Callable[..., Localnet]]:
    """`start_localnet(tempo=10, ...)`: a chain of its own, stopped with the session if not before."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Localnet(**options))


@pytest.fixture(scope="session")
def localnet(start_localnet: Callable[..., Localnet], localnet_options: dict[str, Any]) -> Localnet:
    """The session's shared chain, which keeps nothing: use wallets and subnets of your own."""
    return start_localnet(**localnet_options)
