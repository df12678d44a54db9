"""The runtime this chain reports: its metadata for the chosen block time, its version, and the codec over them.

The tables are in metadata/; only the slot duration differs from chain to chain. The SDK keeps metadata by genesis
hash, so the genesis block commits to these bytes (genesis.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bittensor_core import Runtime

from subnet.localnet import metadata
from subnet.localnet.metadata import SPEC_NAME, SPEC_VERSION, TX_VERSION


@dataclass(frozen=True)
class ChainRuntime:
    block_time_ms: int
    v15: bytes
    codec: Runtime
    apis: dict[str, dict[str, Any]]
    """By the name state_call uses, e.g. "Core_version": the types of inputs and output."""

    @classmethod
    def build(cls, block_time_ms: int) -> ChainRuntime:
        codec = metadata.runtime(block_time_ms)
        apis = {
            f"{api}_{method}": declared
            for api, methods in codec.runtime_api_map().items()
            for method, declared in methods.items()
        }
        return cls(block_time_ms, metadata.metadata_v15(block_time_ms), codec, apis)

    @cached_property
    def v14(self) -> bytes:
        """Metadata as state_getMetadata answers, made when first asked for."""
        return metadata.metadata_v14(self.block_time_ms)


VERSION: dict[str, Any] = {
    "specName": SPEC_NAME,
    "implName": "sn38-localnet",
    "authoringVersion": 1,
    "specVersion": SPEC_VERSION,
    "implVersion": 1,
    "apis": [],
    "transactionVersion": TX_VERSION,
    "stateVersion": 1,
    "systemVersion": 1,
}
"""As state_getRuntimeVersion answers."""
