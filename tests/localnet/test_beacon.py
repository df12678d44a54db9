"""A running chain that asks an HTTP endpoint for drand's pulses: one on this machine, with real pulses of 2023."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import bittensor as bt
import pytest

from subnet.localnet import Localnet
from subnet.localnet.beacon import MAX_ANSWER_BYTES, QUICKNET, NoPulse, fetch
from tests.conftest import dev
from tests.localnet.test_sdk import fund, register, run, subnet, succeed
from tests.localnet.test_timelock import PULSES, seal


class Endpoint(ThreadingHTTPServer):
    """Answers what `answers` holds by path, anything else with 404; and nothing to urllib by its own name."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, which: str, round_: int, signature: str) -> None:
        pulse = {"round": round_, "signature": signature}
        self.answers[f"/{QUICKNET}/public/{which}"] = json.dumps(pulse).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        known = "urllib" not in self.headers["User-Agent"]
        answer = self.server.answers.get(self.path) if known else None
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(answer or b"")))
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def heard(client: bt.Client, round_: int) -> None:
    async for _ in client.blocks():
        if await client.query(("Drand", "LastStoredRound")) == round_:
            return


def test_timelocked_weights_of_a_real_client_are_set_once_their_round_is_fetched(
    endpoint: Endpoint, start_localnet: Callable[..., Localnet]
) -> None:
    newest = max(PULSES)
    endpoint.publish("latest", newest, PULSES[newest])
    endpoint.publish("1000", 1000, PULSES[1000])
    net = start_localnet(block_time=0.05, tempo=40, weights_rate_limit=1, beacon=endpoint.url)

    async def talk(client: bt.Client) -> None:
        owner, validator = dev("beacon-o"), dev("beacon-v")
        netuid = await subnet(net, client, owner)
        await fund(net, client, validator)
        await register(client, netuid, validator)
        async with bt.Client(net.endpoint) as fresh:
            await succeed(
                fresh, bt.AddStake(netuid=netuid, amount_tao=20, hotkey_ss58=validator.hotkey_ss58), validator
            )
        enable = bt.calls.AdminUtils.sudo_set_commit_reveal_weights_enabled(netuid=netuid, enabled=True)
        sudo = bt.calls.Sudo.sudo(call=await client._substrate.compose(enable))
        assert (await client.submit_call(sudo, dev("alice"))).success
        await heard(client, newest)
        await client.wait_for_epoch(netuid)
        sealed = bt.calls.SubtensorModule.commit_timelocked_mechanism_weights(
            netuid=netuid, mecid=0, commit=seal(validator.hotkey_ss58, {0: 5}), reveal_round=1000,
            commit_reveal_version=4,
        )  # fmt: skip
        assert (await client.submit_call(sealed, validator, signer="hotkey")).success
        assert await client.weights.weights(netuid=netuid) == {}
        async for _ in client.blocks():
            if await client.weights.weights(netuid=netuid) == {1: {0: 1.0}}:
                break
        assert await client.query(("Drand", "Pulses"), [1000]) is not None

    run(net, talk)
    assert net.stop() == 0 and net.log == ""


def test_a_beacon_that_lies_or_vanishes_is_said_once_and_costs_no_block(
    endpoint: Endpoint, start_localnet: Callable[..., Localnet]
) -> None:
    endpoint.publish("latest", 1001, PULSES[1000])
    net = start_localnet(block_time=0.05, beacon=endpoint.url)

    async def talk(client: bt.Client) -> None:
        async for _ in client.blocks():
            if "round 1001 is not quicknet's" in net.log:
                break
        endpoint.publish("latest", 1000, PULSES[1000])
        await heard(client, 1000)

    run(net, talk)
    assert net.stop() == 0
    assert net.log.count("no pulses from the beacon") == 1 and "is back" in net.log


def test_what_is_no_answer_is_said(endpoint: Endpoint) -> None:
    endpoint.answers = {"/long": b" " * (MAX_ANSWER_BYTES + 1), "/list": b"[]", "/text": b"pulse"}
    said = []
    for path in ("/missing", "/long", "/list", "/text"):
        with pytest.raises(NoPulse) as refused:
            fetch(endpoint.url + path)
        said.append(str(refused.value))
    assert "404" in said[0] and "too long" in said[1] and "no JSON object" in said[2] and "Expecting value" in said[3]
