"""Flags: the ecosystem's spelling, the SDK's variables, and the order flag, variable, default."""

from __future__ import annotations

import argparse

import pytest

from subnet.chain.flags import ChainFlags, add_chain_flags


def parse(*argv: str) -> ChainFlags:
    parser = argparse.ArgumentParser()
    add_chain_flags(parser)
    return ChainFlags.of(parser.parse_args(argv))


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BT_NETWORK", "BT_WALLET", "BT_WALLET_HOTKEY", "BT_WALLET_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert parse() == ChainFlags(38, "finney", "default", "default", "~/.bittensor/wallets")
    assert parse().btcli_wallet == "-w default -H default"


def test_flags_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BT_NETWORK", "test")
    monkeypatch.setenv("BT_WALLET", "cold")
    monkeypatch.setenv("BT_WALLET_HOTKEY", "hot")
    monkeypatch.setenv("BT_WALLET_PATH", "/keys")
    assert parse("--netuid", "2") == ChainFlags(2, "test", "cold", "hot", "/keys")
    wallet = ("--wallet.name", "a", "--wallet.hotkey", "b", "--wallet.path", "/p")
    given = parse("--subtensor.network", "ws://h:1", *wallet)
    assert given == ChainFlags(38, "ws://h:1", "a", "b", "/p")
    assert given.btcli_wallet == "-w a -H b --wallet-path /p"


@pytest.mark.parametrize("netuid", ["0", "-1", "two", "4096", ""])
def test_bad_netuid(netuid: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--netuid", netuid)
    assert "is not a subnet: 1 to 4095" in capsys.readouterr().err
