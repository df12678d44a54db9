"""The miner: train on the assigned samples, commit, average with everybody, settle what was not carried."""
