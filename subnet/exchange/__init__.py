"""Commitments, roster, verified butterfly all-reduce, and repair: the round protocol between peers.

It moves bytes with `subnet.swarm` and computes with `subnet.diloco`; it knows nothing of losses, scores or extrinsics.
"""
