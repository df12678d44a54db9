"""The edge to the chain: the only package that imports the Bittensor SDK.

`keys` is light (no SDK client, no torch) and may be loaded anywhere; `client` is the connection, `clock` block time.
"""
