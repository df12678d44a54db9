"""sn38: many independent computers train one language model together, and a Bittensor subnet pays them for it."""

__version__ = "0.1.0"
