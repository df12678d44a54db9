"""Scoring: from loss drops to the weights the chain pays by. Pure functions on small tables.

It reads no model, network, clock or chain; validators measure, this package judges. The scheme follows
Templar's Gauntlet (arXiv:2505.21684): rank peers by the loss drop of their own contribution, rate the ranks.
"""
