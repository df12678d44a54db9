"""DiLoCo without a network: layout, codecs, exact averaging, the outer step, hashes, inner training, checkpoints."""
