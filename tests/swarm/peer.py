"""A peer as a process of its own, for tests that kill it.

Usage: python -m swarm.peer HOME KEY PORT BOOTSTRAP. It offers one tree (of its key's name), prints its process ids, and
leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from subnet.config import NodeConfig, load_run
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.swarm.network import Swarm

from .conftest import HOTKEYS, KEYS, Row, Rows


def leaves_of(key: int) -> list[bytes]:
    return [bytes([key, i]) * 20_000 for i in range(6)]


async def main(home: str, key: str, port: str, *bootstrap: str) -> None:
    config = NodeConfig(home=Path(home), host="127.0.0.1", port=int(port))
    rows = Rows([Row(hotkey) for hotkey in HOTKEYS])
    swarm = await Swarm.start(config, KEYS[int(key)], load_run("demo"), rows, lambda: 100.0, bootstrap=bootstrap)
    leaves = leaves_of(int(key))
    swarm.store.add(Tree(hash_leaves(leaves)).root, leaves)
    pids = {"dht": swarm._control._dht.pid, "p2pd": swarm._control.p2pd}
    print(json.dumps({"maddrs": swarm.maddrs, "sockets": str(swarm._claim.sockets), **pids}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await swarm.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
