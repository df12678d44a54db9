"""A subnet at one block: who is registered, with what stake, and what the last epoch gave them.

Plain immutable data, safe to hand to any thread or process; the reading of it from the chain is `client`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

RAO = 1_000_000_000
U16_MAX = 0xFFFF
MAX_COMMITMENT_BYTES = 128


@dataclass(frozen=True)
class Row:
    """One registered hotkey."""

    uid: int
    hotkey: str
    coldkey: str
    stake: float
    """Stake weight in alpha: the hotkey's alpha plus its root TAO times the chain's TAO weight."""
    incentive: float
    """Share of the miners' reward in the last epoch, 0..1."""
    dividends: float
    """Share of the validators' reward in the last epoch, 0..1."""
    emission: float
    """Alpha earned in the last epoch, by mining and validating together."""
    permit: bool
    """Whether its weights count."""
    last_update: int
    """Block at which it last set weights, at first that of its registration."""
    registered_at: int
    """Block of its registration."""
    commitment: bytes | None
    """What it published with `commit`, at most 128 bytes of anybody's making; None if nothing or not plain bytes."""


@dataclass(frozen=True)
class Metagraph:
    """A subnet at `block`. `rows` are in the order of uids, without gaps."""

    netuid: int
    block: int
    tempo: int
    """Blocks per epoch."""
    last_epoch: int
    """Block of the last epoch, 0 before the first."""
    owner_hotkey: str
    owner_coldkey: str
    rows: tuple[Row, ...]

    @cached_property
    def by_hotkey(self) -> dict[str, Row]:
        return {row.hotkey: row for row in self.rows}

    def uid_of(self, hotkey: str) -> int | None:
        """The uid registered to `hotkey`, None if it is not registered."""
        row = self.by_hotkey.get(hotkey)
        return None if row is None else row.uid


def build(netuid: int, graph: dict[str, Any], commitments: list[Any]) -> Metagraph:
    """From the runtime's `get_metagraph` record and `Commitments.CommitmentOf` values, one per hotkey in uid order."""
    rows = tuple(
        Row(
            uid=uid,
            hotkey=str(graph["hotkeys"][uid]),
            coldkey=str(graph["coldkeys"][uid]),
            stake=int(graph["total_stake"][uid]) / RAO,
            incentive=int(graph["incentives"][uid]) / U16_MAX,
            dividends=int(graph["dividends"][uid]) / U16_MAX,
            emission=int(graph["emission"][uid]) / RAO,
            permit=bool(graph["validator_permit"][uid]),
            last_update=int(graph["last_update"][uid]),
            registered_at=int(graph["block_at_registration"][uid]),
            commitment=committed_bytes(commitments[uid]),
        )
        for uid in range(len(graph["hotkeys"]))
    )
    return Metagraph(
        netuid=netuid,
        block=int(graph["block"]),
        tempo=int(graph["tempo"]),
        last_epoch=int(graph["last_step"]),
        owner_hotkey=str(graph["owner_hotkey"]),
        owner_coldkey=str(graph["owner_coldkey"]),
        rows=rows,
    )


def committed_bytes(record: Any) -> bytes | None:
    """The plain bytes in one `CommitmentOf` value; None for no commitment or one of another form (hash, timelock)."""
    fields = record["info"]["fields"] if isinstance(record, dict) else []
    if len(fields) != 1 or not isinstance(fields[0], dict):
        return None
    ((variant, value),) = fields[0].items()
    if not variant.startswith("Raw") or not isinstance(value, str) or not value.startswith("0x"):
        return None
    data = bytes.fromhex(value[2:])
    return data if len(data) <= MAX_COMMITMENT_BYTES else None


def commitment_fields(data: bytes) -> dict[str, Any]:
    """The `CommitmentInfo` value that carries `data`. Raises ValueError above 128 bytes."""
    if len(data) > MAX_COMMITMENT_BYTES:
        raise ValueError(f"a commitment holds at most {MAX_COMMITMENT_BYTES} bytes, got {len(data)}")
    return {"fields": [{f"Raw{len(data)}": "0x" + data.hex()}]}
