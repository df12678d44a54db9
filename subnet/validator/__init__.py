"""The validator: follow the state, score every contribution by what it does to the loss, set weights on chain."""
