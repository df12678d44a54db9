"""The chain's calls, one module per pallet or concern; importing this package registers them all with dispatch.py."""

from subnet.localnet.pallets import balances, utility

__all__ = ["balances", "utility"]
