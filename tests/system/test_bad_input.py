"""Whatever a user can get wrong: exit code 2, one line that says what to do, nothing left running or half-written."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from subnet.chain import wallets
from subnet.chain.client import Chain
from subnet.cli.__main__ import main
from subnet.demo.stage import free_port
from subnet.diloco import checkpoint
from subnet.diloco.layout import Layout
from subnet.diloco.state import OuterState
from subnet.home import shared_folder
from subnet.swarm.lock import claim_hotkey

ROOT = Path(__file__).resolve().parents[2]
ERROR = re.compile(r"(sn38( \w+)?: )?error: \S.*")

Refused = Callable[..., str]


@dataclass
class Subnet:
    """A started subnet on the session's chain; its wallets are `miner` (registered), `idle` (no stake), `outsider`."""

    netuid: int
    endpoint: str
    wallets: Path

    def flags(self, wallet: str, role: str = "miner") -> list[str]:
        where = ["--netuid", str(self.netuid), "--subtensor.network", self.endpoint, "--no-wandb", "--threads", "1"]
        return [role, *where, "--wallet.name", wallet, "--wallet.path", str(self.wallets)]


@pytest.fixture(scope="module")
def subnet(localnet: Any, tmp_path_factory: pytest.TempPathFactory) -> Subnet:
    folder = tmp_path_factory.mktemp("wallets")

    async def found() -> int:
        chain = await Chain.connect(localnet.endpoint)
        try:
            owner = wallets.create_wallet(folder, "owner")
            await wallets.fund(chain, wallets.alice(), owner.coldkey_ss58, 5_000.0)
            netuid = await wallets.register_subnet(chain, owner)
            await wallets.start_call(chain, owner, netuid)
            for name in ("miner", "idle"):
                wallet = wallets.create_wallet(folder, name)
                await wallets.fund(chain, wallets.alice(), wallet.coldkey_ss58, 1_000.0)
                await wallets.burned_register(chain, wallet, netuid)
        finally:
            await chain.close()
        wallets.create_wallet(folder, "outsider")
        return netuid

    return Subnet(asyncio.run(found()), localnet.endpoint, folder)


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run a command in this process and return its one line of error, without "error: "."""

    def run(*argv: str) -> str:
        before = children()
        try:
            code: Any = main(list(argv))
        except SystemExit as end:
            code = end.code
        text = capfd.readouterr().err
        assert code == 2, text
        assert children() == before
        return one_line(text)

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state"


def one_line(text: str) -> str:
    """The error line in what a command wrote to stderr: the last one, and the only one of its kind."""
    assert "Traceback" not in text
    lines = text.splitlines()
    assert len([line for line in lines if ERROR.fullmatch(line)]) == 1, text
    assert ERROR.fullmatch(lines[-1]), text
    return lines[-1].partition("error: ")[2]


def children() -> dict[int, str]:
    """Command lines of this process's running children, but for Python's and torch's own, which end when it does."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in table.splitlines()]
    mine = {int(pid): args for pid, parent, state, args in rows if int(parent) == os.getpid() and state[0] != "Z"}
    return {pid: args for pid, args in mine.items() if not re.search("^ps |resource_tracker|torch_shm_manager", args)}


def run_file(folder: Path, **changes: str) -> Path:
    """The demo's run with lines replaced: `run_file(folder, lr='lr = "fast"')`."""
    text = (ROOT / "runs" / "demo.toml").read_text(encoding="utf-8")
    for name, line in changes.items():
        text, count = re.subn(rf"(?m)^{name} *=.*$", line, text, count=1)
        assert count == 1, f"no line for {name} in the demo's run"
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


# Flags ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv, says",
    [
        (["miner", "--no-such-flag"], "--no-such-flag"),
        (["validator", "--netuid"], "--netuid"),
        (["miner", "--netuid", "two"], "'two' is not a subnet"),
        (["miner", "--threads", "many"], "--threads"),
        (["miner", "--threads", "-1"], "--threads must be 0 or more, got -1"),
        (["miner", "--swarm.port", "70000"], "--swarm.port must be a TCP port, got 70000"),
        (["miner", "--log-level", "loud"], "--log-level"),
        (["demo", "--miners", "0"], "--miners must be 1 to 64"),
        (["demo", "--minutes", "nan"], "--minutes must be at least 1.8"),
        (["demo", "--minutes", "1.7"], "--minutes must be at least 1.8: 6 rounds of the run"),
        (["emissions", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["localnet", "--port", "no"], "--port"),
    ],
)
def test_flags_that_are_wrong(refused: Refused, argv: list[str], says: str) -> None:
    assert says in refused(*argv)


def test_a_command_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no command 'train'\n") and "miner" in error


def test_the_demo_does_not_write_into_a_folder_that_holds_something(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    assert "is not empty" in refused("demo", "--out", str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


# Run files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"lr": 'lr = "fast"'}, "train.lr must be a number"),
        ({"inner_steps": "inner_steps = 1.5"}, "train.inner_steps"),
        ({"batch_size": "batch_sise = 8"}, "batch_sise"),
        ({"leader_blocks": "leader_blocks = 0"}, "rounds.leader_blocks"),
        ({"commit_end": "commit_end = 1"}, "rounds.commit_end must be above train_end"),
        ({"name": "name = demo"}, "not valid TOML"),
    ],
)
def test_run_files_that_are_wrong(
    refused: Refused, tmp_path: Path, home: Path, changes: dict[str, str], says: str
) -> None:
    path = run_file(tmp_path, **changes)
    error = refused("miner", "--run", str(path), "--home", str(home))
    assert error.startswith(f"{path}: ") and says in error
    assert not home.exists()


def test_runs_that_do_not_exist(refused: Refused, tmp_path: Path, home: Path) -> None:
    assert "no run named 'dmeo'" in refused("miner", "--run", "dmeo", "--home", str(home))
    missing = str(tmp_path / "missing.toml")
    assert refused("miner", "--run", missing, "--home", str(home)).startswith(f"{missing}: cannot be read")
    assert not home.exists()


# Wallets and the chain ------------------------------------------------------------------------------------------------


def test_wallets_that_do_not_exist(refused: Refused, subnet: Subnet, home: Path) -> None:
    error = refused(*subnet.flags("nobody"), "--home", str(home))
    assert "no wallet 'nobody'" in error and "btcli wallet create -w nobody" in error
    error = refused(*subnet.flags("miner"), "--wallet.hotkey", "cold", "--home", str(home))
    assert "no hotkey 'cold'" in error and "btcli wallet new-hotkey" in error
    assert not home.exists()


def test_a_chain_that_refuses_the_connection(refused: Refused, subnet: Subnet, home: Path) -> None:
    endpoint = f"ws://127.0.0.1:{free_port()}"
    error = refused(*subnet.flags("miner"), "--subtensor.network", endpoint, "--home", str(home))
    assert f"cannot reach {endpoint}" in error
    assert not home.exists()


def test_a_chain_that_nobody_knows(refused: Refused, subnet: Subnet, home: Path) -> None:
    error = refused(*subnet.flags("miner"), "--subtensor.network", "lcoal", "--home", str(home))
    assert error.startswith("--subtensor.network: ") and "network 'lcoal'" in error and "[" not in error
    for known in ("finney", "test", "local", "ws://"):
        assert known in error
    assert not home.exists()


def test_a_subnet_that_does_not_exist(refused: Refused, subnet: Subnet, home: Path) -> None:
    error = refused(*subnet.flags("miner"), "--netuid", "4000", "--home", str(home))
    assert "subnet 4000 does not exist" in error
    assert not home.exists()


def test_a_hotkey_that_is_not_registered(refused: Refused, subnet: Subnet, home: Path) -> None:
    for role in ("miner", "validator"):
        error = refused(*subnet.flags("outsider", role), "--home", str(home))
        assert f"is not registered on subnet {subnet.netuid}" in error
        assert f"btcli tx burned-register --netuid {subnet.netuid} -w outsider" in error
    assert not home.exists()


def test_a_validator_without_stake(refused: Refused, subnet: Subnet, home: Path) -> None:
    error = refused(*subnet.flags("idle", "validator"), "--home", str(home))
    assert "has no stake" in error and "btcli tx add-stake" in error
    assert not home.exists()


# Data, disk and devices -----------------------------------------------------------------------------------------------


def test_data_that_is_missing_or_too_small(refused: Refused, subnet: Subnet, tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = run_file(tmp_path, source='source = "folder"')
    flags = [*subnet.flags("miner"), "--run", str(run), "--home", str(home)]
    assert "no folder is set" in refused(*flags)
    assert "does not exist" in refused(*flags, "--data.path", str(tmp_path / "nowhere"))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    assert "no text in" in refused(*flags, "--data.path", str(corpus))
    (corpus / "empty.txt").touch()
    assert "nothing but empty files" in refused(*flags, "--data.path", str(corpus))
    (corpus / "note.txt").write_text("A note.\n" * 100)
    assert "at least 1024 are needed" in refused(*flags, "--data.path", str(corpus))
    assert not home.exists()
    assert not [p for p in tmp_path.rglob("*") if "building" in p.name]


def test_data_for_a_run_that_brings_its_own(refused: Refused, subnet: Subnet, home: Path, tmp_path: Path) -> None:
    error = refused(*subnet.flags("miner"), "--data.path", str(tmp_path), "--home", str(home))
    assert f"--data.path {tmp_path} cannot be used" in error and "leave the flag out" in error
    assert not home.exists()


def test_a_state_folder_that_cannot_be_made(refused: Refused, subnet: Subnet, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    error = refused(*subnet.flags("miner"), "--home", str(file / "home"))
    assert f"{file / 'home'} cannot be used as the state folder: {file} is not a folder; give another --home" in error
    assert refused(*subnet.flags("miner"), "--home", str(file)).startswith(f"{file} cannot be used as the state folder")
    assert file.read_text() == "not a folder" and list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_folder_that_may_not_be_written(refused: Refused, subnet: Subnet, home: Path) -> None:
    home.mkdir(mode=0o500)
    error = refused(*subnet.flags("miner"), "--home", str(home))
    assert f"{home} cannot be used as the state folder: it may not be written; give another --home" in error
    assert not list(home.iterdir())


@pytest.mark.parametrize("wrong", [".sn38", ".sn38/data"])
def test_a_shared_folder_that_is_a_file(
    refused: Refused, subnet: Subnet, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    file = tmp_path / "user" / wrong
    file.parent.mkdir(parents=True)
    file.write_text("not a folder")
    error = refused(*subnet.flags("miner"), "--home", str(home))
    assert f"{file} cannot be used as the folder that a user's neurons share: it is not a folder" in error
    assert "set HOME" in error
    assert not home.exists() and [p for p in (tmp_path / "user").rglob("*") if p.is_file()] == [file]


def test_a_hotkey_that_already_runs_with_another_state_folder(
    refused: Refused, subnet: Subnet, home: Path, tmp_path: Path
) -> None:
    async def identity() -> bytes:
        chain = await Chain.connect(subnet.endpoint)
        try:
            return await chain.identity()
        finally:
            await chain.close()

    hotkey = wallets.create_wallet(subnet.wallets, "miner").hotkey_ss58
    other = tmp_path / "other"
    lock = claim_hotkey(shared_folder(), hotkey, subnet.netuid, asyncio.run(identity()), other)
    try:
        error = refused(*subnet.flags("miner"), "--home", str(home))
    finally:
        lock.release()
    assert f"hotkey {hotkey} is already running as process {os.getpid()} (state folder {other})" in error
    assert "a hotkey may run once: stop the other" in error
    assert not home.exists()


def test_a_state_folder_that_another_neuron_uses(refused: Refused, subnet: Subnet, home: Path) -> None:
    from subnet.swarm.process import HomeClaim

    claim = HomeClaim(home)
    try:
        assert "another neuron uses the state folder" in refused(*subnet.flags("miner"), "--home", str(home))
    finally:
        claim.release()


def test_a_port_that_is_taken(refused: Refused, subnet: Subnet, home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = refused(*subnet.flags("miner"), "--swarm.port", str(port), "--home", str(home))
    assert str(port) in error
    assert not (home / "swarm.json").exists()


def test_addresses_that_make_no_sense(refused: Refused, subnet: Subnet, home: Path) -> None:
    flags = [*subnet.flags("miner"), "--home", str(home)]
    assert "the.moon" in refused(*flags, "--swarm.host", "the.moon")
    assert "the.moon" in refused(*flags, "--swarm.announce", "the.moon:4000")
    assert not (home / "swarm.json").exists()


@pytest.mark.parametrize("device", ["toaster", "cuda:99", "meta"])
def test_a_device_that_is_not_there(refused: Refused, subnet: Subnet, home: Path, device: str) -> None:
    error = refused(*subnet.flags("miner"), "--device", device, "--home", str(home))
    assert "--device" in error and device in error
    assert not home.exists()


def test_a_checkpoint_of_another_model(refused: Refused, subnet: Subnet, home: Path) -> None:
    layout = Layout.of([("weight", (8, 8))], 64)
    state = OuterState(torch.zeros(64), torch.zeros(64), 3, layout)
    kept = checkpoint.save(home / "checkpoints", state, None, {}, {"run_id": "00" * 32, "round": 1})
    before = {p: p.read_bytes() for p in kept.iterdir()}
    assert "is of another model" in refused(*subnet.flags("miner"), "--home", str(home))
    assert {p: p.read_bytes() for p in kept.iterdir()} == before
    assert not (home / "swarm.json").exists()


def test_a_score_table_that_is_damaged(refused: Refused, subnet: Subnet, home: Path) -> None:
    home.mkdir()
    (home / "scores.json").write_text("{")
    staked = asyncio.run(_stake(subnet))
    assert "scores.json" in refused(*subnet.flags(staked, "validator"), "--home", str(home))
    assert (home / "scores.json").read_text() == "{"
    assert not (home / "swarm.json").exists()


async def _stake(subnet: Subnet) -> str:
    """Give the registered miner's hotkey stake, and return its wallet's name."""
    chain = await Chain.connect(subnet.endpoint)
    try:
        await wallets.add_stake(chain, wallets.create_wallet(subnet.wallets, "miner"), subnet.netuid, 100.0)
    finally:
        await chain.close()
    return "miner"


# As processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv, says",
    [
        (["miner", "--no-such-flag"], "unrecognized arguments"),
        (["validator", "--subtensor.network", "local", "--wallet.name", "nobody"], "no wallet 'nobody'"),
        (["localnet", "--ephemeral", "--port", "PORT"], "PORT"),
    ],
)
def test_a_process_says_one_line_and_ends_with_2(tmp_path: Path, argv: list[str], says: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        environment = os.environ | {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, "-m", "subnet.cli", *(port if word == "PORT" else word for word in argv)],
            capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path,
        )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert says.replace("PORT", port) in one_line(ended.stderr)
    assert not (tmp_path / ".sn38").exists()
