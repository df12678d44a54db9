"""Size, error and speed of every codec on the demo model's own pseudo-gradient, against hivemind's and a plain copy.

    python benchmarks/codecs.py

The pseudo-gradient is that of three rounds' inner steps on the standard library. Sizes are of its real leaves with the
Merkle root, and with the proofs of the parts that go to reducers. Speeds are of one core, in CPU time, fp32 megabytes a
second, on a few copies of it in whole leaves of 65,536; contenders take turns. A speed is that of the median turn, a
ratio the median of the turns' own ratios. hivemind's most accurate codec needs bitsandbytes (`pip install --no-deps
"bitsandbytes~=0.45.2"`, which hivemind asks for); without it, its quantile codec is taken.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench import Figures, budget, main, pinned, say
from numpy.typing import NDArray
from torch import Tensor

from subnet.config import CodecConfig, RunConfig, load_run
from subnet.data.prepare import prepare
from subnet.diloco.codec import Codec, codec_of, decode_part, encode_tree, reduced_codec_of
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import HASH_BYTES, Tree, hash_leaves
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes

MAX_SPARSE_BITS = 10.0
"""Per kept value; 64 of 4,096 are kept, so this is 200 times smaller than fp32."""
MAX_INT4_BITS = 4.15
MIN_VERSUS_HIVEMIND = 10.0
MIN_VERSUS_TOPK = 3.0
ROUNDS = 3
REDUCERS = (2, 4, 8)
"""Among how many a contribution is divided; each part travels with a proof."""
COPIES = 4
LEAF = 65_536
TURNS = 25
SLOW_TURNS = 3
HIVEMIND_PART = 2**17
"""Elements of one of hivemind's parts, 512 KiB by default."""

CODECS = {
    "fp16": CodecConfig(name="fp16"),
    "int8": CodecConfig(name="int8"),
    "int4": CodecConfig(name="int4", block=128),
    "sparse": CodecConfig(name="sparse"),
}


Times = NDArray[np.float64]


@dataclass(frozen=True)
class Contender:
    """Something that makes bytes of a vector and a vector of those; `turns` is how often it is timed."""

    encode: Callable[[], Any]
    decode: Callable[[Any], Tensor]
    turns: int = TURNS


async def measure() -> tuple[bool, Figures]:
    """Train, then weigh and time."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with pinned({min(os.sched_getaffinity(0))}):
        run = load_run("demo")
        layout = Layout.of(parameter_shapes(run.model).items(), run.codec.leaf_size)
        say(f"training {ROUNDS} rounds of {run.train.inner_steps} inner steps ...")
        delta = _pseudo_gradient(run, layout)
        figures: Figures = {name: _sizes(codec_of(cfg), layout, delta) for name, cfg in CODECS.items()}
        figures["sparse"]["reduced"] = _sizes(reduced_codec_of(CODECS["sparse"]), layout, delta)
        say("timing ...")
        # Whole leaves only: the straightforward top-k has nothing for a shorter chunk.
        x = delta.repeat(COPIES)[: COPIES * delta.numel() // LEAF * LEAF].clone()
        rivals = _rivals(x)
        times = _times({**_ours(x), **rivals})
    rival = next(name for name in rivals if name.startswith("hivemind"))
    megabytes = 4e-6 * x.numel()
    for name in CODECS:
        figures[name] |= _speeds(times[name], megabytes) | {"share_of_copy": _short(_ratio(times, name, "copy"))}
    figures["baselines"] = {name: _speeds(times[name], megabytes) for name in rivals}
    figures["baselines"]["copy"] = {"both": _speeds(times["copy"], megabytes)["both"]}
    figures["baselines"][rival]["relative_error"] = _short(_error(x, rivals[rival]))
    budgets: Figures = {
        "sparse_bits_per_kept_value": budget(figures["sparse"]["bits_per_kept_value"], MAX_SPARSE_BITS),
        "int4_bits_per_parameter": budget(figures["int4"]["bits_per_parameter"], MAX_INT4_BITS),
        "int8_speed_to_hivemind": budget(_ratio(times, "int8", rival), MIN_VERSUS_HIVEMIND, at_least=True),
        "int4_speed_to_hivemind": budget(_ratio(times, "int4", rival), MIN_VERSUS_HIVEMIND, at_least=True),
        "int8_error_to_hivemind": budget(
            figures["int8"]["relative_error"] / figures["baselines"][rival]["relative_error"], 1.0
        ),
        "sparse_speed_to_topk": budget(_ratio(times, "sparse", "topk"), MIN_VERSUS_TOPK, at_least=True),
    }
    return all(each["ok"] for each in budgets.values()), {**budgets, "hivemind_codec": rival, **figures}


def _pseudo_gradient(run: RunConfig, layout: Layout) -> Tensor:
    """fp32 `[numel]`: parameters before less after the last round's inner steps."""
    model = build_model(run.model)
    model.load_state_dict(init_theta(run.model, run.seed), strict=False)
    trainer = InnerTrainer(model, run.train, layout)
    steps, rng = run.train.inner_steps, np.random.default_rng(run.seed)
    with tempfile.TemporaryDirectory(prefix="sn38-bench-") as folder:
        shards = prepare(run.data, Path(folder), run.model.seq_len)
        for each in range(ROUNDS):
            before = trainer.theta()
            batches = [shards.train(rng.integers(0, shards.num_train, run.train.batch_size)) for _ in range(steps)]
            trainer.train(batches, steps, each * steps, lambda: False)
    return before - trainer.theta()


def _sizes(codec: Codec, layout: Layout, delta: Tensor) -> Figures:
    leaves = encode_tree(codec, layout, delta)
    decoded = decode_part(codec, layout, leaves, 0, layout.num_leaves)
    bits = 8 * (sum(map(len, leaves)) + HASH_BYTES)
    figures: Figures = {
        "bits_per_parameter": _short(bits / layout.numel),
        "bits_per_parameter_with_proofs": {n: _short(_proven(leaves, layout, n) / layout.numel) for n in REDUCERS},
        "times_smaller_than_fp32": _short(32 * layout.numel / bits),
        "relative_error": _short(float((decoded - delta).norm() / delta.norm())),
    }
    if codec.name == "sparse":
        kept = int((decoded != 0).sum())
        figures["bits_per_kept_value"] = _short(bits / kept)
        figures["bits_per_kept_value_with_proofs"] = {n: _short(_proven(leaves, layout, n) / kept) for n in REDUCERS}
        figures["relative_error_of_kept"] = _short(
            float((decoded - delta)[decoded != 0].norm() / delta[decoded != 0].norm())
        )
    return figures


def _proven(leaves: list[bytes], layout: Layout, reducers: int) -> int:
    """Bits of the root and of everybody's part, each with the hashes that prove it to be under the root."""
    tree = Tree(hash_leaves(leaves))
    proofs = sum(len(tree.range_proof(start, stop)) for start, stop in layout.parts(reducers))
    return 8 * (sum(map(len, leaves)) + HASH_BYTES * (1 + proofs))


def _ours(x: Tensor) -> dict[str, Contender]:
    bounds = [*range(0, x.numel(), LEAF), x.numel()]
    target = torch.empty_like(x)

    def contender(codec: Codec) -> Contender:
        return Contender(lambda: codec.encode_leaves(x, bounds), lambda leaves: codec.decode_leaves(leaves, bounds))

    ours = {name: contender(codec_of(cfg)) for name, cfg in CODECS.items()}
    return {**ours, "copy": Contender(lambda: target.copy_(x), lambda copied: copied)}


def _rivals(x: Tensor) -> dict[str, Contender]:
    from hivemind.compression import BlockwiseQuantization, CompressionInfo, Quantile8BitQuantization

    parts = x.split(HIVEMIND_PART)
    infos = [CompressionInfo.from_tensor(part) for part in parts]

    def contender(codec: Any, turns: int) -> Contender:
        return Contender(
            lambda: [codec.compress(part, info) for part, info in zip(parts, infos, strict=True)],
            lambda made: torch.cat([codec.extract(part) for part in made]),
            turns,
        )

    topk = Contender(lambda: _topk_encode(x), lambda made: _topk_decode(*made, x.numel()))
    try:
        version = importlib.metadata.version("bitsandbytes")
    except importlib.metadata.PackageNotFoundError:
        say("bitsandbytes is not installed: compared with hivemind's Quantile8BitQuantization instead")
        return {"hivemind Quantile8BitQuantization": contender(Quantile8BitQuantization(), SLOW_TURNS), "topk": topk}
    name = f"hivemind BlockwiseQuantization (bitsandbytes {version})"
    return {name: contender(BlockwiseQuantization(), TURNS), "topk": topk}


def _topk_encode(x: Tensor, chunk: int = 4096, k: int = 64) -> tuple[bytes, bytes, bytes]:
    """The straightforward way: `torch.topk` per chunk, 12 bits a place, 2 bits a value, two fp16 centroids a chunk."""
    whole = x[: x.numel() // chunk * chunk].view(-1, chunk)
    magnitudes, places = whole.abs().topk(k, dim=1)
    negative = whole.gather(1, places) < 0
    high = magnitudes >= magnitudes.mean(1, keepdim=True)
    count = high.sum(1, keepdim=True)
    top = (magnitudes * high).sum(1, keepdim=True) / count
    low = (magnitudes * ~high).sum(1, keepdim=True) / (k - count).clamp_(min=1)
    codes = (high.to(torch.uint8) | negative.to(torch.uint8) << 1).view(-1, 4)
    packed = codes[:, 0] | codes[:, 1] << 2 | codes[:, 2] << 4 | codes[:, 3] << 6
    pairs = places.to(torch.int32).view(-1, 2)
    word = pairs[:, 0] | pairs[:, 1] << 12
    triples = torch.stack((word & 255, word >> 8 & 255, word >> 16), 1).to(torch.uint8)
    centroids = torch.cat((low, top), 1).half()
    return triples.numpy().tobytes(), packed.numpy().tobytes(), centroids.numpy().tobytes()


def _topk_decode(places: bytes, codes: bytes, centroids: bytes, n: int, chunk: int = 4096, k: int = 64) -> Tensor:
    triples = torch.frombuffer(bytearray(places), dtype=torch.uint8).view(-1, 3).to(torch.int32)
    word = triples[:, 0] | triples[:, 1] << 8 | triples[:, 2] << 16
    columns = torch.stack((word & 4095, word >> 12), 1).view(-1, k).long()
    packed = torch.frombuffer(bytearray(codes), dtype=torch.uint8)
    unpacked = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], 1).view(-1, k)
    levels = torch.frombuffer(bytearray(centroids), dtype=torch.float16).float().view(-1, 2)
    values = levels.gather(1, (unpacked & 1).long()) * (1 - 2 * (unpacked >> 1).float())
    x = torch.zeros(n)
    x[: len(columns) * chunk].view(-1, chunk).scatter_(1, columns, values)
    return x


def _times(contenders: dict[str, Contender]) -> dict[str, Times]:
    """Seconds of encoding and of decoding, `[turns, 2]`; all take turns."""
    times: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for turn in range(TURNS):
        for name, each in contenders.items():
            if turn >= each.turns:
                continue
            marks = [time.process_time()]
            made = each.encode()
            marks.append(time.process_time())
            each.decode(made)
            marks.append(time.process_time())
            times[name].append(np.diff(marks).tolist())
    return {name: np.array(rows) for name, rows in times.items()}


def _speeds(times: Times, megabytes: float) -> Figures:
    """MB/s of encoding, decoding and both, of the median turn."""
    encode, decode = np.median(times, axis=0)
    return {
        "encode_mb_per_s": round(megabytes / encode),
        "decode_mb_per_s": round(megabytes / decode),
        "both": round(megabytes / float(np.median(times.sum(axis=1)))),
    }


def _ratio(times: dict[str, Times], name: str, rival: str) -> float:
    """How many times the rival's speed, encoding and decoding: the median over the turns that both had."""
    shared = min(len(times[name]), len(times[rival]))
    ours, theirs = (times[each][:shared].sum(axis=1) for each in (name, rival))
    return float(np.median(theirs / ours))


def _error(x: Tensor, contender: Contender) -> float:
    return float((contender.decode(contender.encode()) - x).norm() / x.norm())


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main(measure))
