"""The chain's calls, one module per pallet or concern; importing this package registers them all with dispatch.py."""

from subnet.localnet.pallets import admin, balances, commitments, keys, neurons, stake, subnets, utility, weights

__all__ = ["admin", "balances", "commitments", "keys", "neurons", "stake", "subnets", "utility", "weights"]
