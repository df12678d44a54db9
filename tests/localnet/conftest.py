"""A chain in this process, driven by signed extrinsics, for tests that need no wire and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from bittensor_core import Keypair

from subnet.localnet.chain import Chain
from subnet.localnet.dispatch import Rules
from subnet.localnet.genesis import open_chain
from subnet.localnet.store import Store

PERIOD = 64


@cache
def key(name: str, crypto: int = 1) -> Keypair:
    return Keypair.from_uri(f"//{name}", crypto_type=crypto)


@dataclass(frozen=True)
class Outcome:
    """What one extrinsic did; `error` is the refusal's name, or None."""

    error: str | None
    events: list[tuple[str, str, Any]]

    def event(self, name: str) -> Any:
        """The attributes of the one event of this name."""
        (attributes,) = [attributes for _, event, attributes in self.events if event == name]
        return attributes


class Net:
    def __init__(self, store: Store, rules: Rules) -> None:
        self.chain: Chain = open_chain(store, None, rules)[0]
        self.codec = self.chain.runtime.codec
        self.clock = 1_700_000_000_000

    def address(self, name: str) -> str:
        return key(name).ss58_address

    def get(self, item: str, *keys: Any, pallet: str = "SubtensorModule") -> Any:
        return self.chain.ledger.get(pallet, item, *keys)

    def free(self, name: str) -> int:
        return self.get("Account", self.address(name), pallet="System")["data"]["free"]

    def produce(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock += 250
            self.chain.produce(self.clock)

    def next_epoch(self, netuid: int) -> None:
        """Produces blocks until the subnet's next epoch has run."""
        index = self.get("SubnetEpochIndex", netuid)
        while self.get("SubnetEpochIndex", netuid) == index:
            self.produce()

    def compose(self, pallet: str, name: str, /, **arguments: Any) -> bytes:
        return bytes(self.codec.compose_call(pallet, name, arguments))

    def sign(self, signer: Keypair, call: bytes, **overrides: Any) -> bytes:
        """A signed extrinsic; `overrides` replace what an honest signer would put into it."""
        head = self.chain.head
        era = {"period": PERIOD, "current": head.number}
        terms = {
            "era": era,
            "nonce": self.chain.mempool.next_index(signer.ss58_address),
            "tip": 0,
            "tip_asset_id": None,
            "genesis_hash": self.chain.genesis,
            "era_block_hash": head.hash,
            "metadata_hash": None,
            **overrides,
        }
        payload = bytes(self.codec.signature_payload(call, **terms))
        raw, _ = self.codec.encode_signed_extrinsic(
            call,
            public_key=bytes(signer.public_key),
            signature=signer.sign(payload),
            signature_version=signer.crypto_type,
            metadata_hash_enabled=terms["metadata_hash"] is not None,
            **{name: terms[name] for name in ("era", "nonce", "tip", "tip_asset_id")},
        )
        return bytes(raw)

    def do(self, who: str, pallet: str, name: str, /, **arguments: Any) -> Outcome:
        """Signs, submits and includes a call in the next block."""
        self.chain.submit(self.sign(key(who), self.compose(pallet, name, **arguments)))
        self.produce()
        return self.outcomes()[-1]

    def sudo(self, pallet: str, name: str, /, **arguments: Any) -> Any:
        """The result of a call by root."""
        done = self.do("Alice", "Sudo", "sudo", call=self.compose(pallet, name, **arguments))
        assert done.error is None
        return done.event("Sudid")["sudo_result"]

    def outcomes(self) -> list[Outcome]:
        """By extrinsic of the head block, without the timestamp."""
        grouped: dict[int, list[tuple[str, str, Any]]] = {}
        for record in self.get("Events", pallet="System"):
            if record["extrinsic_idx"]:
                event = (record["module_id"], record["event_id"], record["attributes"])
                grouped.setdefault(record["extrinsic_idx"], []).append(event)
        return [Outcome(self._error(events), events) for _, events in sorted(grouped.items())]

    def _error(self, events: list[tuple[str, str, Any]]) -> str | None:
        for _, event, attributes in events:
            if event == "ExtrinsicFailed":
                return self.error_name(attributes["dispatch_error"])
        return None

    def error_name(self, error: Any) -> str:
        if isinstance(error, dict) and "Module" in error:
            code = int(error["Module"]["error"][2:4], 16)
            return self.codec.module_error(error["Module"]["index"], code)[0]
        return error if isinstance(error, str) else str(next(iter(error.values())))

    def fund(self, *names: str, tao: int = 2000) -> None:
        for name in names:
            done = self.do("Alice", "Balances", "transfer_allow_death", dest=self.address(name), value=tao * 10**9)
            assert done.error is None

    def subnet(self, owner: str = "owner") -> int:
        """A started subnet of `owner` ("owner_hot" is its hotkey); its netuid."""
        self.fund(owner)
        done = self.do(owner, "SubtensorModule", "register_network", hotkey=self.address(f"{owner}_hot"))
        netuid = done.event("NetworkAdded")[0]
        assert self.do(owner, "SubtensorModule", "start_call", netuid=netuid).error is None
        return netuid

    def register(self, netuid: int, *names: str) -> list[int]:
        """Registers "<name>_hot" of coldkey <name>; the uids."""
        uids = []
        for name in names:
            if not self.free(name):
                self.fund(name)
            hotkey = self.address(f"{name}_hot")
            done = self.do(name, "SubtensorModule", "burned_register", netuid=netuid, hotkey=hotkey)
            assert done.error is None
            uids.append(done.event("NeuronRegistered")[1])
        return uids

    def stake(self, name: str, netuid: int, tao: int, hotkey: str | None = None) -> Outcome:
        target = self.address(hotkey or f"{name}_hot")
        return self.do(name, "SubtensorModule", "add_stake", hotkey=target, netuid=netuid, amount_staked=tao * 10**9)


@pytest.fixture
def net() -> Net:
    """Epochs of 10 blocks, weights every 5."""
    return Net(Store(None), Rules(tempo=10, weights_rate_limit=5))
