"""Token shards with a manifest hash, and the assignment of their samples to peers."""
