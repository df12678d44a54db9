"""A whole swarm on one machine, as real processes: chain, miners, validators, a free-rider, a late joiner."""
