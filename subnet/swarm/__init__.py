"""Peers finding and hearing each other: libp2p identities, signed records in a DHT, blobs pulled by hash.

It knows nothing of tensors, rounds' phases or losses; hivemind is the network underneath and is imported only here.
"""
