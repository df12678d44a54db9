"""One config dataclass per component of a run, every field documented with its unit and checked on construction.

Not the run itself (`subnet.config` puts the components together, reads and hashes them). The form is torchtitan's:
a docstring under each field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from subnet.strict import Range, Strict, show

_HEX32 = re.compile(r"(?:[0-9a-f]{64})?")
_TOKENIZER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.json")

Count = Annotated[int, Range(1, 2**31)]
CountOrZero = Annotated[int, Range(0, 2**31)]
Fraction = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(0, 1e12, open_low=True)]


@dataclass(frozen=True)
class ModelConfig(Strict):
    """A Llama decoder. Every tensor's first dimension is a multiple of 8: 1, 2, 4 or 8 ranks own whole slices."""

    section: ClassVar[str] = "model"

    preset: str
    """Name of the preset that filled the fields not given explicitly, or "custom"."""
    vocab_size: Annotated[int, Range(8, 2**24)]
    """Rows of the embedding; at least 258 for the bytes tokenizer."""
    hidden_size: Annotated[int, Range(8, 2**17)]
    """Width of the residual stream."""
    intermediate_size: Annotated[int, Range(8, 2**20)]
    """Width of the gated MLP."""
    num_layers: Annotated[int, Range(1, 1024)]
    """Decoder layers."""
    num_heads: Annotated[int, Range(1, 1024)]
    """Query heads; hidden_size / num_heads is the (even) head dimension."""
    num_kv_heads: Annotated[int, Range(1, 1024)]
    """Key and value heads; divides num_heads."""
    seq_len: Annotated[int, Range(8, 2**20)]
    """Tokens per sample."""
    rope_theta: Positive = 10_000.0
    """Base of the rotary position frequencies."""
    tie_embeddings: bool = False
    """Whether the output matrix is the embedding."""

    def _check(self) -> None:
        if self.hidden_size % (2 * self.num_heads):
            why = f"must be num_heads ({self.num_heads}) times an even number, got {self.hidden_size}"
            raise self._fail("hidden_size", why)
        if self.num_heads % self.num_kv_heads:
            raise self._fail("num_kv_heads", f"must divide num_heads ({self.num_heads}), got {self.num_kv_heads}")
        for name in ("vocab_size", "hidden_size", "intermediate_size"):
            if getattr(self, name) % 8:
                raise self._fail(name, f"must be a multiple of 8, got {getattr(self, name)}")
        if self.head_dim * self.num_kv_heads % 8:
            raise self._fail("num_kv_heads", f"times the head dimension ({self.head_dim}) must be a multiple of 8")

    @property
    def head_dim(self) -> int:
        """Elements per attention head."""
        return self.hidden_size // self.num_heads


@dataclass(frozen=True)
class DataConfig(Strict):
    """What the model is trained on."""

    section: ClassVar[str] = "data"

    source: Literal["stdlib", "folder", "shards"]
    """Python's own standard library, a folder of text, or a folder of ready token shards."""
    path: str = ""
    """Folder of the source on this node (node-local: not part of the run id)."""
    tokenizer: str = "bytes"
    """"bytes", or the file name of a `tokenizers` JSON inside the source folder."""
    manifest: str = ""
    """Hex hash of the token shards everybody must have; "" until they are built (see `with_manifest`)."""
    held_out: Annotated[float, Range(0, 0.5, open_low=True)] = 0.02
    """Fraction of the samples that is never trained on; one sample in round(1 / held_out)."""

    def _check(self) -> None:
        if not _HEX32.fullmatch(self.manifest):
            raise self._fail("manifest", f'must be "" or 64 lower-case hex digits, got {show(self.manifest)}')
        if self.tokenizer != "bytes" and not _TOKENIZER.fullmatch(self.tokenizer):
            raise self._fail("tokenizer", f'must be "bytes" or a file name ending in .json, got {show(self.tokenizer)}')


@dataclass(frozen=True)
class TrainConfig(Strict):
    """The inner optimizer, with linear warm-up and cosine decay over the global inner step."""

    section: ClassVar[str] = "train"

    inner_steps: Annotated[int, Range(1, 100_000)]
    """H: most inner steps a miner does per round; a slow miner stops at the phase's end."""
    batch_size: Annotated[int, Range(1, 2**20)]
    """Samples per inner step."""
    micro_batch: Annotated[int, Range(1, 2**20)]
    """Samples per forward pass; divides batch_size."""
    lr: Positive
    """Peak learning rate."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon for the hidden matrices and AdamW for the rest."""
    muon_momentum: Annotated[float, Range(0, 1, open_high=True)] = 0.95
    """Muon's momentum."""
    betas: Annotated[tuple[float, float], Range(0, 1, open_high=True)] = (0.9, 0.95)
    """AdamW's moment decays."""
    eps: Positive = 1e-8
    """AdamW's epsilon."""
    weight_decay: Fraction = 0.1
    """Decoupled weight decay, on matrices only."""
    warmup_steps: CountOrZero = 0
    """Inner steps of linear warm-up."""
    decay_steps: Count = 1_000_000
    """Global inner step at which the cosine reaches its floor."""
    min_lr_ratio: Fraction = 0.1
    """Floor of the cosine as a fraction of lr."""
    grad_clip: Positive = 1.0
    """Largest gradient norm of an inner step."""

    def _check(self) -> None:
        if self.batch_size % self.micro_batch:
            raise self._fail("micro_batch", f"must divide batch_size ({self.batch_size}), got {self.micro_batch}")
        if self.warmup_steps >= self.decay_steps:
            raise self._fail("warmup_steps", f"must be below decay_steps ({self.decay_steps}), got {self.warmup_steps}")


@dataclass(frozen=True)
class OuterConfig(Strict):
    """The outer optimizer on averaged pseudo-gradients (DiLoCo, arXiv 2311.08105)."""

    section: ClassVar[str] = "outer"

    lr: Annotated[float, Range(0, 10, open_low=True)] = 0.7
    """Outer learning rate."""
    momentum: Annotated[float, Range(0, 1, open_high=True)] = 0.9
    """Outer momentum; with few rounds (tens) 0.5 to 0.6 is far better."""
    nesterov: bool = True
    """Nesterov look-ahead; plain momentum if false."""


@dataclass(frozen=True)
class CodecConfig(Strict):
    """How a pseudo-gradient is compressed and cut."""

    section: ClassVar[str] = "codec"

    name: Literal["fp32", "fp16", "int8", "int4", "sparse"] = "int8"
    """Codec of contributions and reduced parts (docs/codecs.md)."""
    block: Annotated[int, Range(8, 2**20)] = 256
    """Elements that share one scale in int8 and int4 (there even; 128 costs 1 % more bytes, and errs 5 % less)."""
    chunk: Annotated[int, Range(64, 65_536)] = 4096
    """Elements of which sparse keeps the largest."""
    top_k: Annotated[int, Range(1, 65_536)] = 64
    """Elements that a contribution keeps of every chunk, in sparse."""
    reduced_top_k: Annotated[int, Range(1, 65_536)] = 256
    """Elements that a reduced part keeps of every chunk, in sparse: what members kept are different ones."""
    error_feedback_decay: Fraction = 1.0
    """Factor on what earlier rounds could not carry."""
    leaf_size: Annotated[int, Range(64, 2**20)] = 65_536
    """Most elements of one leaf of the hash tree, which is the unit of transfer and repair."""

    def _check(self) -> None:
        if self.name == "int4" and self.block % 2:
            raise self._fail("block", f"must be even for int4, got {self.block}")
        for name in ("top_k", "reduced_top_k"):
            if getattr(self, name) > self.chunk:
                raise self._fail(name, f"must be at most chunk ({self.chunk}), got {getattr(self, name)}")


@dataclass(frozen=True)
class AggregateConfig(Strict):
    """How contributions become one, part by part, after the clip of the declared norms (docs/aggregation.md)."""

    section: ClassVar[str] = "aggregate"

    rule: Literal["mean", "trimmed", "centered_clip"] = "mean"
    """Weighted mean, coordinate-wise trimmed mean, or CenteredClip."""
    over: Literal["all", "senders"] = "all"
    """mean: whether a zero counts at its coordinate, or only those who sent something there (sparse codecs)."""
    trim: Annotated[float, Range(0, 0.5)] = 0.25
    """trimmed: share of the members dropped at each end of every coordinate; 0.5 is the median."""
    radius: Positive = 1.0
    """centered_clip: how far a member may pull, in median distances from the coordinate-wise median."""
    iterations: Annotated[int, Range(1, 20)] = 3
    """centered_clip: steps from the median on."""
    redundancy: Annotated[int, Range(1, 8)] = 1
    """Peers that reduce every part: with 2, any single reducer may die or lie and no part is lost."""

    def _check(self) -> None:
        if self.over == "senders" and self.rule != "mean":
            raise self._fail("over", f"'senders' is for the rule 'mean', not for '{self.rule}'")


@dataclass(frozen=True)
class RoundConfig(Strict):
    """A round's clock: deadlines as block offsets from the round's first block, in the order of the phases."""

    section: ClassVar[str] = "rounds"

    blocks: Annotated[int, Range(6, 1_000_000)]
    """Blocks per round."""
    train_end: Count
    """Inner training stops."""
    commit_end: Count
    """Commitments published later do not count; nothing is served before."""
    roster_end: Count
    """The signed roster is out."""
    scatter_end: Count
    """Reducers have pulled the contributions."""
    gather_end: Count
    """Everybody has pulled the reduced parts; then the outer step."""
    delay: Annotated[int, Range(0, 1)] = 0
    """1: inner steps go on during the exchange, and the averaged update arrives a round late."""
    leader_blocks: Count = 1
    """Blocks after which the next leader in order may publish the roster."""
    max_members: Annotated[int, Range(1, 4096)] = 256
    """Most contributions averaged in a round."""
    newcomers: Annotated[int, Range(0, 4096)] = 4
    """Hotkeys without incentive that are averaged per round all the same."""
    min_incentive_earners: Annotated[int, Range(0, 4096)] = 4
    """While fewer hotkeys earn incentive than this, everybody is averaged."""

    def _check(self) -> None:
        order = ["train_end", "commit_end", "roster_end", "scatter_end", "gather_end", "blocks"]
        for before, after in pairwise(order):
            if getattr(self, before) >= getattr(self, after):
                raise self._fail(after, f"must be above {before} ({getattr(self, before)}), got {getattr(self, after)}")
        if self.newcomers > self.max_members:
            raise self._fail("newcomers", f"must be at most max_members ({self.max_members}), got {self.newcomers}")


@dataclass(frozen=True)
class ScoringConfig(Strict):
    """How validators turn losses into weights. Everybody shares it, so that honest validators agree."""

    section: ClassVar[str] = "scoring"

    samples_own: Annotated[int, Range(2, 65_536)] = 16
    """Samples of a miner's own assigned data per evaluation."""
    samples_held_out: Annotated[int, Range(2, 65_536)] = 32
    """Held-out samples per round, the same for every miner and validator."""
    eval_lr: Annotated[float, Range(0, 10, open_low=True)] = 0.5
    """Fraction of a contribution that is applied to measure its loss drop."""
    evident_z: Annotated[float, Range(0, 100)] = 1.0
    """Standard errors above 0 from which on a held-out loss drop shows work."""
    openskill_beta: Positive = 25 / 6
    """OpenSkill: rating distance that gives about 76 % chance to win."""
    openskill_tau: Annotated[float, Range(0, 100)] = 25 / 300
    """OpenSkill: uncertainty added per match."""
    evidence_decay: Annotated[float, Range(0, 1, open_high=True)] = 0.8
    """Decay per evaluation of the averages of evidence, participation and digests."""
    min_evidence: Annotated[float, Range(0, 1)] = 0.1
    """Averaged evidence of work, as a share of the round's best, below which a miner earns nothing."""
    audit_rate: Fraction = 0.1
    """Share of the reduced parts that a validator makes again from the contributions, drawn by a later block's hash."""
    replay_rate: Fraction = 0.02
    """Share of the contributions of whose inner steps a validator repeats some, drawn by a later block's hash."""
    replay_steps: Count = 5
    """Inner steps between two committed states of a miner, which is what one audit repeats (docs/replay.md)."""
    replay_penalty: Annotated[int, Range(0, 512)] = 100
    """Rounds without pay after an audit that failed; below 1 / replay_rate, leaving out steps would pay."""
    burn: Fraction = 0.0
    """Share of the weight given to the subnet owner's uid."""

    def _check(self) -> None:
        if self.replay_rate * self.replay_penalty < 1 and self.replay_rate > 0:
            why = f"must be at least 1 / replay_rate ({1 / self.replay_rate:g}), got {self.replay_penalty}"
            raise self._fail("replay_penalty", why)
