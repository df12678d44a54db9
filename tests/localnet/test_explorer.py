"""The explorer: what its endpoints say of a chain, what they refuse, and the page in a real browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from subnet.localnet.dispatch import Rules
from subnet.localnet.explorer import server, views
from subnet.localnet.explorer.history import History, brief
from subnet.localnet.explorer.server import Explorer
from subnet.localnet.explorer.views import NotFound, Source
from subnet.localnet.store import Store
from tests.localnet.conftest import Net, key

DEADLINE = 20.0
EVIL = "<img src=x onerror=document.title='pwned'>"


@pytest.fixture
def source(net: Net) -> Source:
    return Source(net.chain, History(net.chain), 0.25)


def evil_subnet(net: Net) -> int:
    netuid = net.subnet()
    texts = dict.fromkeys(("github_repo", "subnet_contact", "subnet_url", "discord", "logo_url", "additional"), "")
    identity = {"subnet_name": EVIL, "description": "<script>document.title='pwned'</script>", **texts}
    assert net.do("owner", "SubtensorModule", "set_subnet_identity", netuid=netuid, **identity).error is None
    return netuid


def weighed_subnet(net: Net) -> int:
    """A subnet with an epoch in which "good" was weighed by the owner's validator."""
    netuid = evil_subnet(net)
    net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=False)
    net.sudo("AdminUtils", "sudo_set_min_allowed_weights", netuid=netuid, min_allowed_weights=1)
    net.register(netuid, "good", "voter")
    assert net.stake("voter", netuid, 100).error is None
    net.next_epoch(netuid)
    uid = net.get("Uids", netuid, net.address("good_hot"))
    done = net.do("voter_hot", "SubtensorModule", "set_weights", netuid=netuid, dests=[uid], weights=[9], version_key=0)
    assert done.error is None
    net.next_epoch(netuid)
    net.next_epoch(netuid)
    return netuid


def test_a_subnet_shows_who_was_paid_and_by_whom(net: Net, source: Source) -> None:
    netuid = weighed_subnet(net)
    shown = views.subnet(source, netuid)
    good = next(row for row in shown["neurons"] if row["hotkey"] == net.address("good_hot"))
    voter = next(row for row in shown["neurons"] if row["hotkey"] == net.address("voter_hot"))
    assert good["incentive"] == 65535 and good["coldkey"] == net.address("good")
    assert good["emission"] == net.get("Emission", netuid)[good["uid"]] > 0
    assert voter["permit"] and voter["total_stake"] >= voter["alpha_stake"] > 0
    assert (
        shown["epochs"][-1]["emission"] == net.get("Emission", netuid) and shown["paid"] == shown["epochs"][-1]["paid"]
    )
    assert shown["next_epoch"] == shown["last_epoch"] + shown["tempo"] and shown["name"] == EVIL
    assert views.weights(source, netuid)["rows"] == [(voter["uid"], [(good["uid"], 65535)])]
    paid = views.account(source, net.address("good_hot"))
    assert paid["owner"] == net.address("good") and paid["registrations"][0]["uid"] == good["uid"]
    assert paid["pay"][0]["emission"] == good["emission"]
    assert sum(item["alpha"] for item in paid["stake"]) == net.get("TotalHotkeyAlpha", net.address("good_hot"), netuid)


def test_an_account_shows_its_money_and_its_past(net: Net, source: Source) -> None:
    net.fund("bob", tao=7)
    failed = net.do("bob", "Balances", "transfer_allow_death", dest=net.address("carol"), value=10**15)
    assert failed.error is not None
    shown = views.account(source, net.address("bob"))
    assert shown["free"] == net.free("bob") and shown["nonce"] == 1
    latest, first = shown["extrinsics"]
    assert (latest["ok"], latest["error"], latest["signer"]) == (False, failed.error, net.address("bob"))
    assert latest["fee"] == 7 * 10**9 - net.free("bob")
    assert first["ok"] and first["signer"] == net.address("Alice")
    transfer = next(event for event in first["events"] if event["name"] == "Balances.Transfer")
    assert transfer["attributes"] == {"from": net.address("Alice"), "to": net.address("bob"), "amount": 7 * 10**9}
    ranked = {row["account"]: row["free"] for row in views.accounts(source)["accounts"]}
    assert ranked[net.address("bob")] == net.free("bob") and next(iter(ranked)) == net.address("Alice")
    inside = views.block(source, net.chain.head.number)["extrinsics"]
    assert [item["hash"] for item in inside] == [latest["hash"]]
    assert views.overview(source)["extrinsics"][0]["hash"] == latest["hash"]


def test_the_past_is_read_again_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "chain")
    net = Net(store, Rules())
    net.fund("bob")
    net.produce(305)
    net.fund("carol")
    store.close()
    store = Store(tmp_path / "chain")
    again = History(Net(store, Rules()).chain)
    assert [(record.call, record.ok) for record in again.records] == [
        ("Balances.transfer_allow_death", None),
        ("Balances.transfer_allow_death", True),
    ], "an outcome is kept as long as the state of its block"
    assert again.of(net.address("bob"), 5)[0].block == 1
    store.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda source: views.subnet(source, 99),
        lambda source: views.weights(source, 99),
        lambda source: views.block(source, 10**11),
        lambda source: views.account(source, "5nobody"),
    ],
)
def test_what_is_not_there_is_said(source: Source, ask: Callable[[Source], Any]) -> None:
    with pytest.raises(NotFound):
        ask(source)


def test_long_values_are_cut() -> None:
    cut = brief({"a": "x" * 1_000_000, "b": list(range(10_000)), "c": b"\x00" * 10_000})
    assert len(json.dumps(cut)) < 1000


def get(
    port: int, path: str, host: str = "127.0.0.1", method: str = "GET"
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def serving(net: Net, talk: Callable[[int], None]) -> None:
    """Runs `talk(port)` in a thread beside the explorer of the chain."""

    async def main() -> None:
        explorer = Explorer.of(net.chain, 0.25)
        port = await explorer.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(asyncio.to_thread(talk, port), 4 * DEADLINE)
        finally:
            await explorer.stop()

    asyncio.run(main())


def test_the_page_and_its_data_over_http(net: Net) -> None:
    def talk(port: int) -> None:
        for path, kind in (("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css")):
            status, headers, body = get(port, path)
            assert status == 200 and headers["Content-Type"].startswith(kind) and body
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert b"http://" not in body.replace(b"http://www.w3.org/", b"") and b"https://" not in body
        status, headers, body = get(port, "/api/overview")
        assert status == 200 and json.loads(body)["block"] == net.chain.head.number
        assert "Access-Control-Allow-Origin" not in headers
        assert [get(port, path)[0] for path in ("/api/subnet/1", "/api/weights/1", "/api/accounts")] == [200] * 3
        for path in ("/../store.py", "/api/subnet/99", "/api/subnet/x", "/api/account/x", "/%2e%2e/views.py"):
            assert get(port, path)[0] == 404
        for path, method in (("/api/overview", "POST"), ("/" + "x" * 100_000, "GET")):
            with pytest.raises(ConnectionError):
                get(port, path, method=method)

    serving(net, talk)


def test_answers_follow_the_head(net: Net) -> None:
    async def main() -> None:
        explorer = Explorer.of(net.chain, 0.25)
        port = await explorer.start("127.0.0.1", 0)
        for _ in range(3):
            net.produce()
            _, _, body = await asyncio.to_thread(get, port, "/api/overview")
            assert json.loads(body)["block"] == net.chain.head.number
        await explorer.stop()

    asyncio.run(main())


def test_a_name_that_is_not_this_machines_is_refused(net: Net) -> None:
    def talk(port: int) -> None:
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[", ""):
            assert get(port, "/api/overview", host)[0] == 403
        for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", "[::1]", "192.168.1.2"):
            assert get(port, "/api/overview", host)[0] == 200

    serving(net, talk)


def test_silent_clients_are_hung_up_on_and_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)

    async def main() -> None:
        explorer = Explorer.of(net.chain, 0.25)
        port = await explorer.start("127.0.0.1", 0)
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        # Those beyond the bound at once, the others at the deadline: all of them read an end.
        ends = [asyncio.wait_for(_end(reader), DEADLINE) for reader, _ in clients]
        await asyncio.gather(*ends)
        for _, writer in clients:
            writer.close()
        assert (await asyncio.to_thread(get, port, "/api/overview"))[0] == 200
        await explorer.stop()

    asyncio.run(main())


async def _end(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionResetError):
        await reader.read()


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on PATH")
def test_a_browser_shows_strangers_text_as_text(net: Net, tmp_path: Path) -> None:
    netuid = weighed_subnet(net)

    def dom(port: int, page: str) -> str:
        command = [str(BROWSER), "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=2500"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        command += ["--dump-dom", f"http://127.0.0.1:{port}/{page}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def talk(port: int) -> None:
        seen = dom(port, f"#/subnet/{netuid}")
        assert "<title>pwned" not in seen and "<script>document" not in seen
        assert "&lt;img src=x onerror=" in seen and '<img src="x"' not in seen
        assert f'href="#/account/{net.address("good_hot")}"' in seen and "<canvas" in seen
        assert "1.0000" in seen, "the only miner has all of the incentive"
        first = dom(port, "")
        assert f'href="#/subnet/{netuid}"' in first and "SubtensorModule.set_weights" in first
        account = dom(port, f"#/account/{key('Alice').ss58_address}")
        assert "//Alice" in account and "Transfers" in account

    serving(net, talk)
