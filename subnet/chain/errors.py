"""What can go wrong at the chain, as errors a person or a loop can act on.

All are `UserError`s: one clear line with the remedy. A running neuron catches `ChainUnreachable` and goes on without.
"""

from __future__ import annotations

from subnet.errors import UserError


class ChainUnreachable(UserError):
    """The RPC endpoint refused, vanished or did not answer in time; the same call may work later."""


class BlockMissing(ChainUnreachable):
    """The node answers, but lacks what was asked: a block not yet there, a state long discarded."""


class ChainRefused(UserError):
    """The chain rejected a transaction. `name` is its error name (e.g. `NotEnoughBalanceToStake`), if it gave one."""

    def __init__(self, message: str, name: str | None = None, rate_limited: bool = False) -> None:
        super().__init__(message)
        self.name = name
        self.rate_limited = rate_limited
        """The same transaction may pass later."""


class NoSuchSubnet(UserError):
    """The subnet is not registered on this chain."""

    def __init__(self, netuid: int, network: str) -> None:
        super().__init__(
            f"subnet {netuid} does not exist on {network}: see `btcli subnets list --network {network}` "
            "for those that do, and pass one with --netuid"
        )
