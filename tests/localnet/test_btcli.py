"""btcli as a newcomer types it: its own program, unmodified, against the running node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from subnet.localnet import Localnet
from tests.conftest import ALICE_SEED

BTCLI = Path(sys.executable).with_name("btcli")
pytestmark = pytest.mark.skipif(not BTCLI.exists() and shutil.which("btcli") is None, reason="btcli is not installed")


class Shell:
    """Runs btcli in a home of its own; `--network local` is the test's node."""

    def __init__(self, home: Path, net: Localnet) -> None:
        self._environment = {**os.environ, "HOME": str(home), "BT_CHAIN_ENDPOINT": net.endpoint, "COLUMNS": "200"}

    def run(self, line: str) -> str:
        command = [str(BTCLI), *line.split()[1:]]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def shell(localnet: Localnet, tmp_path: Path) -> Shell:
    return Shell(tmp_path, localnet)


def test_wallet_balance(shell: Shell) -> None:
    shell.run(f"btcli wallet regen-coldkey -w alice --no-password --seed {ALICE_SEED}")
    balance = json.loads(shell.run("btcli wallet balance -w alice --network local --json"))
    assert "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY" in json.dumps(balance)


def test_subnets_list(shell: Shell) -> None:
    listed = shell.run("btcli subnets list --network local")
    assert "0 (root)" in listed and "\n  1" in listed


def test_the_metagraph_as_json(shell: Shell) -> None:
    graph = json.loads(shell.run("btcli query metagraph --netuid 1 --network local --json"))
    assert graph["netuid"] == 1 and len(graph["hotkeys"]) == 1


NEWCOMER = f"""
btcli wallet regen-coldkey -w alice --no-password --seed {ALICE_SEED}
btcli wallet create -w owner -H default --no-password
btcli wallet create -w validator -H default --no-password
btcli wallet create -w miner -H default --no-password
btcli tx transfer --dest owner --amount-tao 2000 -w alice --network local -y
btcli tx transfer --dest validator --amount-tao 100 -w alice --network local -y
btcli tx transfer --dest miner --amount-tao 100 -w alice --network local -y
btcli tx register-subnet -w owner --network local -y
btcli tx start-call --netuid 2 -w owner --network local -y
btcli tx burned-register --netuid 2 -w validator --network local -y
btcli tx burned-register --netuid 2 -w miner --network local -y
btcli tx add-stake --netuid 2 --amount-tao 20 -w validator --network local -y
btcli subnets list --network local
btcli subnets show 2 --network local
btcli query metagraph --netuid 2 --network local --json
btcli query neurons --netuid 2 --network local
btcli query subnet-hyperparameters --netuid 2 --network local
btcli wallet overview -w validator --network local
"""
"""The developer's loop of the chain's own guide, as it stands in our README."""


@pytest.mark.slow
def test_the_newcomers_loop(start_localnet: Callable[..., Localnet], tmp_path: Path) -> None:
    net = start_localnet(tempo=20, weights_rate_limit=5)
    shell = Shell(tmp_path, net)
    for line in NEWCOMER.strip().splitlines():
        shell.run(line)
    graph = json.loads(shell.run("btcli query metagraph --netuid 2 --network local --json"))
    assert len(graph["hotkeys"]) == 3 and graph["alpha_stake"][1] > 19 * 10**9
    shell.run("btcli weights set --netuid 2 --uids 2 --weights 1.0 -w validator --network local -y")
    for _ in range(20):
        graph = json.loads(shell.run("btcli query metagraph --netuid 2 --network local --json"))
        if graph["emission"][2]:
            break
    assert graph["incentives"][2] == 65535 and graph["dividends"][1] == 65535
