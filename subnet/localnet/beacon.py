"""Pulses of drand's quicknet, fetched from a drand HTTP endpoint and given to the chain.

The newest, by which a client sees that this chain hears the beacon, and those that timelocked commits wait for. The
Subtensor's offchain worker stores every round; nothing here reads the others. Signatures are checked by the chain.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import threading
import time
import urllib.request
from functools import partial
from typing import Any

from subnet.localnet.chain import Chain
from subnet.localnet.pallets import timelock

logger = logging.getLogger(__name__)

QUICKNET = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
PERIOD_SECONDS = 3.0
"""Between two rounds of quicknet, and between two looks at the endpoint."""
ANSWER_SECONDS = 5.0
MAX_ANSWER_BYTES = 4096
HEADERS = {"User-Agent": "sn38-localnet"}
"""The public endpoints' guards turn away what urllib calls itself."""
MAX_FETCHED = 32
"""Rounds fetched in one look, besides the newest."""


class NoPulse(Exception):
    """The endpoint could not be asked, or did not answer with a pulse of quicknet; says what it did."""


async def follow(chain: Chain, url: str) -> None:
    """Gives the chain its pulses from `url`, e.g. https://api.drand.sh, for ever. Says once that none come, and once
    that they come again.
    """
    answers = True
    while True:
        try:
            await _look(chain, url)
        except NoPulse as error:
            if answers:
                logger.warning("no pulses from the beacon at %s: %s; timelocked weights wait meanwhile", url, error)
            answers = False
        else:
            if not answers:
                logger.info("the beacon at %s is back", url)
            answers = True
        await asyncio.sleep(PERIOD_SECONDS)


async def _look(chain: Chain, url: str) -> None:
    newest = await _hear(chain, url, "latest")
    missing = sorted(round_ for round_ in timelock.awaited(chain.ledger) if 0 < round_ < newest)
    for round_ in missing[:MAX_FETCHED]:
        await _hear(chain, url, str(round_))


async def _hear(chain: Chain, url: str, which: str) -> int:
    """The round of the pulse that the chain was given. Raises NoPulse."""
    answer = await _in_thread(partial(fetch, f"{url.rstrip('/')}/{QUICKNET}/public/{which}"))
    round_, signature = answer.get("round"), answer.get("signature")
    asked = which in ("latest", str(round_))
    if not (asked and isinstance(round_, int) and 0 < round_ < 1 << 64 and isinstance(signature, str)):
        raise NoPulse(f"asked for round {which}, it answered {str(answer)[:100]}")
    if not chain.hear(round_, signature):
        raise NoPulse(f"the signature it gives for round {round_} is not quicknet's")
    return round_


def fetch(address: str) -> dict[str, Any]:
    """The JSON object at an HTTP address, within two times ANSWER_SECONDS. Raises NoPulse."""
    deadline = time.monotonic() + ANSWER_SECONDS
    data = b""
    try:
        request = urllib.request.Request(address, headers=HEADERS)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
            while piece := response.read1(MAX_ANSWER_BYTES):
                data += piece
                if len(data) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                    raise NoPulse("its answer is too long, or too slow")
        found = json.loads(data)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoPulse(str(error)) from error
    if not isinstance(found, dict):
        raise NoPulse("its answer is no JSON object")
    return found


async def _in_thread(work: partial[dict[str, Any]]) -> dict[str, Any]:
    """As `asyncio.to_thread`, but a chain that stops does not wait for the answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[dict[str, Any]] = loop.create_future()

    def settle(result: dict[str, Any] | NoPulse) -> None:
        if done.cancelled():
            return
        if isinstance(result, NoPulse):
            done.set_exception(result)
        else:
            done.set_result(result)

    def run() -> None:
        result: dict[str, Any] | NoPulse
        try:
            result = work()
        except NoPulse as error:
            result = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="beacon", daemon=True).start()
    return await done
