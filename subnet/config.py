"""What all peers of a run agree on (`RunConfig`, hashed into the run id) and what is this node's own (`NodeConfig`).

Not a place for flags: a run is one TOML file under `runs/`, read strictly, whose canonical bytes are the same on every
machine. The components' fields are in `subnet.components`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgpack

from subnet.components import (
    AggregateConfig,
    CodecConfig,
    DataConfig,
    ModelConfig,
    OuterConfig,
    RoundConfig,
    ScoringConfig,
    TrainConfig,
)
from subnet.errors import ConfigError
from subnet.model.presets import PRESETS
from subnet.strict import Range, Strict, parse, show

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "AggregateConfig",
    "CodecConfig",
    "ConfigError",
    "DataConfig",
    "ModelConfig",
    "NodeConfig",
    "OuterConfig",
    "RoundConfig",
    "RunConfig",
    "ScoringConfig",
    "TrainConfig",
    "first_difference",
    "from_bytes",
    "load_run",
    "run_id",
    "run_names",
    "to_bytes",
    "with_manifest",
]

MAX_BYTES = 64 * 1024
"""Largest run file or wire form that is read at all."""
MAX_SEGMENTS = 256
"""Most pieces that an audit's record cuts a round's inner steps into."""
NODE_LOCAL = ("data.path",)
"""Fields that peers need not agree on: left out of the canonical form."""
_RUN_DOMAIN = b"sn38/run/1"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PACKAGE = Path(__file__).resolve().parent
_RUNS_FOLDERS = (_PACKAGE / "runs", _PACKAGE.parent / "runs")  # an installed package's, a checkout's


@dataclass(frozen=True)
class RunConfig(Strict):
    """Everything the peers of a run agree on; `run_id` is its hash and is part of every record."""

    name: str
    """Label of the run: lower-case letters, digits, '.', '_' and '-'."""
    model: ModelConfig
    data: DataConfig
    train: TrainConfig
    outer: OuterConfig
    codec: CodecConfig
    rounds: RoundConfig
    scoring: ScoringConfig
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the initial parameters and of the data order."""
    aggregate: AggregateConfig = field(default_factory=AggregateConfig)
    protocol: Annotated[int, Range(1, 255)] = 1
    """Wire version."""

    def _check(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name must be 1 to 64 of a-z, 0-9, '.', '_', '-', no sign first; got {show(self.name)}")
        if self.data.tokenizer == "bytes" and self.model.vocab_size < 258:
            vocab = self.model.vocab_size
            raise ConfigError(f"model.vocab_size must be at least 258 for the bytes tokenizer, got {vocab}")
        steps, apart = self.train.inner_steps, self.scoring.replay_steps
        if self.scoring.replay_rate > 0 and steps > MAX_SEGMENTS * apart:
            least = -(-steps // MAX_SEGMENTS)
            raise ConfigError(f"scoring.replay_steps must be at least {least} for {steps} inner steps, got {apart}")


@dataclass(frozen=True)
class NodeConfig:
    """What is this node's own business; the entry points build it from their flags."""

    home: Path
    """Folder of this node's state: keys, checkpoints, caches."""
    device: str = "cpu"
    """torch device of training and evaluation; "" leaves the choice to the entry point."""
    threads: int = 0
    """torch threads; 0 leaves torch's choice."""
    wandb: str = "offline"
    """Weights & Biases mode: "disabled", "offline" or "online"."""
    host: str = "0.0.0.0"
    """Address the swarm listens on."""
    port: int = 0
    """TCP port the swarm listens on; 0 lets the system choose."""
    announce: tuple[str, ...] = ()
    """Public multiaddrs to publish instead of the ones listened on."""
    reachable: bool = True
    """False behind NAT without a forwarded port: others use the connections that this node opens itself."""
    data_path: Path | None = None
    """Folder of the data source, instead of the run's `data.path`."""
    checkpoints: int = 2
    """Local checkpoints that are kept, at least 1; while one is written there is room for one more needed."""
    log_level: str = "info"
    """Least severe message that is logged: "debug", "info", "warning" or "error"."""


def run_names() -> list[str]:
    """Names of the runs that ship with the package."""
    return sorted({file.stem for folder in _RUNS_FOLDERS if folder.is_dir() for file in folder.glob("*.toml")})


def load_run(path_or_name: str | Path) -> RunConfig:
    """Read a run from a TOML file, or by the name of one that ships with the package ("demo").

    Raises ConfigError, one line naming the file and the field, for whatever is wrong with it.
    """
    file = _find(path_or_name)
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        raise ConfigError(f"{file}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES} bytes; this is not a run file")
    try:
        return parse_toml(raw)
    except ConfigError as e:
        raise ConfigError(f"{file}: {e}") from e


def parse_toml(raw: bytes) -> RunConfig:
    """The run written in `raw`, UTF-8 TOML; a model preset fills the model fields not given. Raises ConfigError."""
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"not valid TOML: {_one_line(e)}") from e
    model = table.get("model")
    if isinstance(model, dict):
        table["model"] = _fill(model)
    return parse(RunConfig, table)


def with_manifest(cfg: RunConfig, manifest: str) -> RunConfig:
    """`cfg` with the hash of the built token shards (64 hex digits).

    Raises ConfigError if the run names another manifest: then this node's data is not the run's data.
    """
    if cfg.data.manifest not in ("", manifest):
        raise ConfigError(
            f"data.manifest is {cfg.data.manifest[:16]}... in the run, but this node's data has {manifest[:16]}...; "
            'get the run\'s own shards, or start a run of your own with manifest = ""'
        )
    return dataclasses.replace(cfg, data=dataclasses.replace(cfg.data, manifest=manifest))


def to_bytes(cfg: RunConfig) -> bytes:
    """Canonical form: msgpack map of "section.name" keys, sorted, floats as doubles, node-local fields left out."""
    table = {name: value for name, value in _flat(cfg) if name not in NODE_LOCAL}
    return msgpack.packb(dict(sorted(table.items())), use_bin_type=True)


def from_bytes(data: bytes) -> RunConfig:
    """Inverse of `to_bytes`, for bytes from a stranger. Raises ConfigError unless they are exactly a canonical form."""
    if len(data) > MAX_BYTES:
        raise ConfigError(f"the run is larger than {MAX_BYTES} bytes")
    try:
        flat = msgpack.unpackb(data, strict_map_key=True, raw=False, max_map_len=256, max_str_len=4096, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as e:
        raise ConfigError(f"the run is not valid msgpack: {_one_line(e)}") from e
    if not isinstance(flat, dict):
        raise ConfigError(f"the run must be a table, got {show(flat)}")
    table: dict[str, Any] = {}
    for key, value in flat.items():
        section, dot, name = str(key).partition(".")
        if not dot:
            table[section] = value
        elif isinstance(nested := table.setdefault(section, {}), dict):
            nested[name] = value
    cfg = parse(RunConfig, table)
    if to_bytes(cfg) != data:
        raise ConfigError("the run is not in canonical form")
    return cfg


def run_id(cfg: RunConfig) -> bytes:
    """32 bytes that name the run: blake2b-256 of the canonical form."""
    return hashlib.blake2b(_RUN_DOMAIN + to_bytes(cfg), digest_size=32).digest()


def first_difference(a: RunConfig, b: RunConfig) -> str | None:
    """The first field in which two runs differ, as "train.lr: 0.001 here, 0.002 there"; None for the same run."""
    for (name, here), (_, there) in zip(_flat(a), _flat(b), strict=True):
        if here != there and name not in NODE_LOCAL:
            return f"{name}: {here!r} here, {there!r} there"
    return None


def _find(path_or_name: str | Path) -> Path:
    text = str(path_or_name)
    if not _NAME.fullmatch(text) or text.endswith(".toml"):
        return Path(text)
    for folder in _RUNS_FOLDERS:
        if (file := folder / f"{text}.toml").is_file():
            return file
    raise ConfigError(f"no run named {show(text)}; known: {', '.join(run_names())}; or give the path of a .toml file")


def _fill(model: dict[str, Any]) -> dict[str, Any]:
    preset = model.setdefault("preset", "custom")
    if preset == "custom":
        return model
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ConfigError(f"model.preset must be one of custom, {', '.join(PRESETS)}, got {show(preset)}")
    return {**PRESETS[preset], **model}


def _flat(cfg: Strict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field in declaration order, nested ones as "section.name"."""
    for f in dataclasses.fields(cfg):
        value = getattr(cfg, f.name)
        if isinstance(value, Strict):
            yield from _flat(value, f"{f.name}.")
        else:
            yield prefix + f.name, value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
