"""One cell of the study: everything that decides its result, and nothing else.

Not the running of it (`simulate`), nor which cells there are (`grid`). A cell's fields are written beside its result,
so that a finished one is recognised and never run again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from subnet.config import CodecConfig, DataConfig, ModelConfig, TrainConfig
from subnet.model.presets import PRESETS

WORKERS = 4
"""M: miners, each with as many samples per inner step as the others."""
LOCAL_BATCH = 4
"""Samples per inner step and miner; DDP's global batch is WORKERS times that."""
WARMUP_SHARE = 12
"""One in so many inner steps is warm-up."""
MIN_LR_RATIO = 0.1

DATA = DataConfig(source="stdlib", tokenizer="bytes")
MODELS = {
    "0.12m": {
        **PRESETS["tiny"],
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_layers": 2,
        "num_heads": 2,
        "num_kv_heads": 2,
    },
    "demo": PRESETS["tiny"],
}
CODECS: dict[str, dict[str, Any]] = {
    "fp32": {"name": "fp32"},
    "int8": {"name": "int8"},
    "int4": {"name": "int4"},
    "sparse-64": {"name": "sparse", "top_k": 64},
    "sparse-128": {"name": "sparse", "top_k": 128},
    "sparse-256": {"name": "sparse", "top_k": 256},
}
"""Label of a codec in a cell -> fields of `CodecConfig`; sparse keeps so many of every 4,096."""


@dataclass(frozen=True)
class Cell:
    """One training run. Learning rates are peaks; the inner schedule is the same for all: warm-up, then a cosine."""

    method: Literal["ddp", "diloco", "alone"]
    """"alone": one miner on its own samples, a quarter of the tokens and no exchange; what all others must beat."""
    lr: float
    """Of the inner optimizer, the only one of DDP."""
    inner: Literal["adamw", "muon"] = "adamw"
    h: int = 1
    """Inner steps per round."""
    ahead: int = 0
    """Of these, done from the miner's own parameters before the outer ones are there (`rounds.delay` = 1)."""
    outer_lr: float = 1.0
    momentum: float = 0.0
    """Outer Nesterov momentum; 0 is none."""
    codec: str = "fp32"
    """Of contributions."""
    reduced: str = "fp32"
    """Of reduced parts."""
    decay: float = 1.0
    """Of the error feedback."""
    over: Literal["all", "senders"] = "all"
    """Who counts in the mean at a coordinate that some did not send."""
    kept_by: Literal["reducer", "senders", "nobody"] = "reducer"
    """Who owes what the reduced part's codec left out (`exchange.owed`)."""
    model: str = "0.12m"
    steps: int = 600
    """Inner steps in all, of every miner."""
    seed: int = 1
    """Of the initial parameters and the order of the data."""

    def key(self) -> tuple[Any, ...]:
        """What tells cells apart."""
        return dataclasses.astuple(self)

    @property
    def model_config(self) -> ModelConfig:
        """Shape of the model."""
        return ModelConfig(preset="custom", **MODELS[self.model])  # type: ignore[arg-type]

    def train_config(self, batch_size: int) -> TrainConfig:
        """The inner loop's settings at `batch_size` samples a step."""
        return TrainConfig(
            inner_steps=self.h,
            batch_size=batch_size,
            micro_batch=batch_size,
            lr=self.lr,
            optimizer=self.inner,
            warmup_steps=self.steps // WARMUP_SHARE,
            decay_steps=self.steps,
            min_lr_ratio=MIN_LR_RATIO,
        )


def codec_config(label: str) -> CodecConfig:
    """The run's codec section that a cell's label stands for."""
    return CodecConfig(**CODECS[label])
