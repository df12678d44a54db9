"""The parts of `benchmarks/exchange.py`: peers of three systems, the network between them, and how they are told."""
