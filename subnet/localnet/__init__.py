"""The embedded chain: a development chain in one process that speaks the Subtensor's JSON-RPC.

Not a consensus chain and not for real value. A separate program: nothing above it imports it.
"""
