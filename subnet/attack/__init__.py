"""Attacks on a swarm, played against the product's own exchange arithmetic, scoring and consensus.

Not a fuzzer of messages: those that break the protocol's form are answered by tests with real peers, which the report
names. Here peers keep to the form and cheat in substance, round after round, for pay or for damage.
"""
