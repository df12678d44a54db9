"""Loss per token and per byte of the methods a run file can name, by simulation; see `benchmarks/quality.py`."""
