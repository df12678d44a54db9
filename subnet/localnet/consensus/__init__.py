"""Arithmetic of the development chain: Yuma consensus, emission and the alpha pool.

Pure functions on integers and numpy arrays; no storage, no network, no clock.
The rules are those of Subtensor's `pallet-subtensor` and `pallet-swap`.
"""
