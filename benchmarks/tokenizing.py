"""Tokens per second of `sn38 tokenize`, against the tokenizer library's own on the same text and cores.

    python benchmarks/tokenizing.py

The text is Python's standard library in a parquet file; the tokenizer is a BPE of 32,000 tokens trained on some of it.
The library's own pace is `encode_batch_fast` on all cores with the text in memory and the tokens thrown away; ours
reads the file, writes shards and starts its processes anew. The two take turns, ROUNDS times; of each the best counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from bench import Figures, budget, main, say

from subnet.data.corpus import stdlib_corpus
from subnet.data.documents import find
from subnet.data.tokenize import TOKENIZER, tokenize

ROUNDS = 3
REPEATS = 2
"""Times the text is in the file: starting a process takes a second, a corpus hours."""
TRAINED_ON = 200
MIN_SHARE = 0.8


async def measure() -> tuple[bool, Figures]:
    """Both paces, by turns."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    workers = len(os.sched_getaffinity(0))
    texts = [document.decode("utf-8", "replace") for document in stdlib_corpus().documents()] * REPEATS
    with tempfile.TemporaryDirectory(prefix="sn38-bench-") as name:
        folder = Path(name)
        source = _prepare(folder, texts)
        own, ours = float("inf"), float("inf")
        for number in range(ROUNDS):
            own = min(own, _own(folder / TOKENIZER, texts))
            began = time.perf_counter()
            _, tally, _ = tokenize(
                find([str(source)]), "text", folder / TOKENIZER, folder / f"out-{number}", workers, lambda _: None
            )
            ours = min(ours, time.perf_counter() - began)
            say(f"round {number + 1} of {ROUNDS}: the library {own:.1f} s, sn38 tokenize {ours:.1f} s")
    share = budget(own / ours, MIN_SHARE, at_least=True)
    pace = {"tokens": tally.tokens, "workers": workers, "tokens_per_second": round(tally.tokens / ours)}
    return share["ok"], {**pace, "share_of_library": share}


def _prepare(folder: Path, texts: list[str]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    say("training a tokenizer ...")
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=32_000, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(texts[:TRAINED_ON], trainer)
    raw.save(str(folder / TOKENIZER))
    pq.write_table(pa.table({"text": texts}), folder / "source.parquet", row_group_size=1000)
    return folder / "source.parquet"


def _own(tokenizer: Path, texts: list[str]) -> float:
    from tokenizers import Tokenizer

    raw = Tokenizer.from_file(str(tokenizer))
    began = time.perf_counter()
    for start in range(0, len(texts), 1000):
        raw.encode_batch_fast(texts[start : start + 1000], add_special_tokens=False)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(measure))
