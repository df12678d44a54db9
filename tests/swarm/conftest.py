"""Keys, a run and real peers for the swarm's tests: every swarm here has its own DHT process and libp2p daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from subnet.chain.keys import Hotkey, hotkey_from_uri
from subnet.config import NodeConfig, RunConfig, load_run

os.environ.setdefault("OMP_NUM_THREADS", "1")

KEYS: list[Hotkey] = [hotkey_from_uri(f"//swarm-test-{i}") for i in range(5)]
HOTKEYS = frozenset(key.ss58 for key in KEYS[:4])
STRANGER = KEYS[4]
RUN_ID = bytes(range(32))
OTHER_RUN = bytes(32)


@dataclass
class Row:
    hotkey: str
    commitment: bytes | None = None
    permit: bool = False


@dataclass
class Rows:
    """As much of a metagraph as the swarm reads."""

    rows: list[Row]


@pytest.fixture(scope="session")
def run() -> RunConfig:
    return load_run("demo")


@pytest.fixture(scope="module")
def config_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], NodeConfig]:
    homes = tmp_path_factory.mktemp("homes")

    def config(name: str, port: int = 0) -> NodeConfig:
        return NodeConfig(home=Path(homes / name), host="127.0.0.1", port=port)

    return config
