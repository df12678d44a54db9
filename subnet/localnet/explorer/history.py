"""What the state forgets: the last extrinsics with their outcome, and each subnet's last epochs.

In memory and bounded. After a restart extrinsics are read again from the stored blocks, their outcomes as far back
as the state's own history goes; epochs begin anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from subnet.localnet.chain import Chain, hex0x
from subnet.localnet.extrinsic import Cursor, Extrinsic, parse
from subnet.localnet.pallets import neurons, subnets
from subnet.localnet.state import StateDiscarded
from subnet.localnet.store import StoredBlock

MAX_RECORDS = 5000
MAX_EPOCHS = 60
"""Per subnet."""

MAX_TEXT = 120
MAX_ITEMS = 16
MAX_DEPTH = 6
"""A value is shown cut to these: an extrinsic may be a megabyte."""

FEE_EVENTS = {("Balances", "Withdraw"), ("TransactionPayment", "TransactionFeePaid")}
OUTCOMES = {("System", "ExtrinsicSuccess"), ("System", "ExtrinsicFailed")}


@dataclass(frozen=True)
class Record:
    """One signed extrinsic in a block. What is not known (the block's events are gone) is None."""

    block: int
    index: int
    time: int
    """Unix time of the block, ms."""
    hash: str
    signer: str
    nonce: int
    call: str
    """Pallet.function."""
    arguments: dict[str, Any]
    ok: bool | None
    error: str | None
    """Why the call failed, or None."""
    fee: int | None
    """rao, with the tip."""
    events: list[dict[str, Any]] | None
    """`name` and `attributes` of what the call did, without fee and outcome."""
    accounts: frozenset[str]
    """Everybody it names, the signer first of all."""

    def json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "accounts"}


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave, by uid."""

    block: int
    time: int
    hotkeys: list[str]
    emission: list[int]
    """alpha, rao."""
    incentive: list[int]
    """Shares in 1/65535, as the next two."""
    dividends: list[int]


class History:
    """Follows a chain from when it is made; the chain calls it after each block."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.records: deque[Record] = deque(maxlen=MAX_RECORDS)
        """Oldest first."""
        self.epochs: dict[int, deque[Epoch]] = {}
        for block in chain.store.busy_blocks(MAX_RECORDS):
            self.records.extend(records(chain, block))
        chain.on_block.append(self._follow)

    def of(self, account: str, count: int) -> list[Record]:
        """The account's last extrinsics, and those of others that name it, newest first."""
        found: list[Record] = []
        for record in reversed(self.records):
            if account in record.accounts:
                found.append(record)
                if len(found) == count:
                    break
        return found

    def _follow(self, block: StoredBlock, changed: set[bytes]) -> None:
        self.records.extend(records(self._chain, block))
        ledger = self._chain.ledger
        sub = ledger.pallet("SubtensorModule")
        index = ledger.codec.item("SubtensorModule", "SubnetEpochIndex")
        for netuid in subnets.netuids(sub):
            if ledger.codec.key(index, (netuid,)) not in changed:
                continue
            epoch = Epoch(
                block.number,
                block_time_ms(self._chain, block),
                neurons.hotkeys(sub, netuid),
                *(sub.get(item, netuid) for item in ("Emission", "Incentive", "Dividends")),
            )
            self.epochs.setdefault(netuid, deque(maxlen=MAX_EPOCHS)).append(epoch)


def block_time_ms(chain: Chain, block: StoredBlock) -> int:
    """Unix time of a block, from its timestamp extrinsic; 0 for genesis, which has none."""
    if not block.number:
        return 0
    cursor = Cursor(block.body[0])
    cursor.compact()
    cursor.take(1)
    return int(chain.runtime.codec.decode_call(cursor.rest())["call_args"][0]["value"])


def events_of(chain: Chain, number: int) -> list[dict[str, Any]] | None:
    """The events of a block as the runtime keeps them, None where its state is gone."""
    try:
        return list(chain.ledger_at(number).get("System", "Events"))
    except StateDiscarded:
        return None


def records(chain: Chain, block: StoredBlock) -> list[Record]:
    """The block's signed extrinsics, in order."""
    if not block.number or len(block.body) == 1:
        return []
    time, events = block_time_ms(chain, block), events_of(chain, block.number)
    found = []
    for index, raw in enumerate(block.body[1:], start=1):
        extrinsic = parse(raw, chain.runtime.codec)
        own = None if events is None else [event for event in events if event["extrinsic_idx"] == index]
        found.append(_record(chain, block.number, index, time, extrinsic, own))
    return found


def _record(
    chain: Chain, number: int, index: int, time: int, extrinsic: Extrinsic, events: list[dict[str, Any]] | None
) -> Record:
    arguments = {item["name"]: item["value"] for item in extrinsic.call["call_args"]}
    error, fee, kept = None, None, None
    accounts = {extrinsic.signer, *addresses(arguments)}
    if events is not None:
        error, fee, kept = None, 0, []
        for event in events:
            kind, attributes = (event["module_id"], event["event_id"]), event["attributes"]
            if kind == ("TransactionPayment", "TransactionFeePaid"):
                fee = attributes["actual_fee"]
            elif kind == ("System", "ExtrinsicFailed"):
                error = error_name(chain, attributes["dispatch_error"])
            if kind not in FEE_EVENTS | OUTCOMES:
                accounts.update(addresses(attributes))
                kept.append({"name": ".".join(kind), "attributes": brief(attributes)})
        kept = kept[:MAX_ITEMS]
    return Record(
        block=number,
        index=index,
        time=time,
        hash=hex0x(extrinsic.hash),
        signer=extrinsic.signer,
        nonce=extrinsic.nonce,
        call=f"{extrinsic.call['call_module']}.{extrinsic.call['call_function']}",
        arguments=brief(arguments),
        ok=None if events is None else error is None,
        error=error,
        fee=fee,
        events=kept,
        accounts=frozenset(accounts),
    )


def error_name(chain: Chain, error: Any) -> str:
    """A dispatch error in a word, such as NotEnoughBalanceToStake."""
    if isinstance(error, dict) and "Module" in error:
        module = error["Module"]
        return str(chain.runtime.codec.module_error(module["index"], int(module["error"][2:4], 16))[0])
    return error if isinstance(error, str) else str(next(iter(error.values())))


def addresses(value: Any) -> Iterator[str]:
    """Every SS58 address in a decoded value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from addresses(item)
    elif isinstance(value, str) and len(value) == 48 and value.isalnum() and value.startswith("5"):
        yield value


def brief(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The value as JSON can hold it, cut to what a reader wants to see."""
    if isinstance(value, dict):
        cut = dict(list(value.items())[:MAX_ITEMS]) if depth else {}
        return {str(key): brief(item, depth - 1) for key, item in cut.items()}
    if isinstance(value, (list, tuple)):
        shown = [brief(item, depth - 1) for item in value[:MAX_ITEMS]] if depth else []
        return [*shown, "…"] if len(value) > len(shown) else shown
    if isinstance(value, (bytes, bytearray)):
        value = hex0x(bytes(value[:MAX_TEXT]))
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return value[: MAX_TEXT - 1] + "…"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)[:MAX_TEXT]
