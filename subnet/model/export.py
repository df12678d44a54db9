"""A trained model as a folder that `from_pretrained` loads, and a sample of its text.

Not a checkpoint of the run (that is `subnet.diloco.checkpoint`): no optimizer state, nothing needed to go on training.
The folder holds config.json, safetensors, generation_config.json and the tokenizer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from subnet.config import ModelConfig
from subnet.errors import UserError
from subnet.model.build import llama_config
from subnet.model.presets import parameter_shapes

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


class Tokenizer(Protocol):
    """What export and sampling need of a tokenizer (`subnet.data.tokens` has two)."""

    bos: int | None
    eos: int

    def encode(self, text: str) -> Any:
        """Token ids of `text`, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens are left out."""

    def to_hugging_face(self, model_max_length: int) -> PreTrainedTokenizerFast:
        """The same tokenizer for `transformers`."""


def export(folder: str | Path, cfg: ModelConfig, theta: Mapping[str, torch.Tensor], tokenizer: Tokenizer) -> Path:
    """Write a `from_pretrained` folder, replacing an earlier export whole; a crash leaves the old one or the new one.

    `theta` holds every parameter of `cfg` by name. Raises UserError when the folder cannot be written or is
    something else than an earlier export, ValueError when `theta` does not fit `cfg`.
    """
    from huggingface_hub import save_torch_state_dict
    from transformers import GenerationConfig

    shapes = parameter_shapes(cfg)
    if {name: tuple(t.shape) for name, t in theta.items()} != shapes:
        raise ValueError("the parameters do not fit the model's configuration")
    folder = Path(folder)
    if folder.exists() and not (folder / "config.json").is_file() and any(folder.iterdir() if folder.is_dir() else [1]):
        raise UserError(f"{folder} exists and is not an exported model; choose another folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as e:
        raise UserError(f"cannot write {folder}: {e.strerror}") from e
    special = {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}
    try:
        # contiguous copies: safetensors refuses views into the one flat parameter vector
        weights = {name: theta[name].detach().to("cpu", torch.float32).clone() for name in shapes}
        save_torch_state_dict(weights, staging, metadata={"format": "pt"})
        llama_config(cfg, architectures=["LlamaForCausalLM"], dtype="float32", **special).save_pretrained(staging)
        GenerationConfig(**special).save_pretrained(staging)
        tokenizer.to_hugging_face(cfg.seq_len).save_pretrained(staging)
        staging.chmod(0o755)
        _swap(staging, folder)
    except OSError as e:
        raise UserError(f"cannot write {folder}: {e.strerror or e}") from e
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def sample(
    model: LlamaForCausalLM, tokenizer: Tokenizer, prompt: str, n: int, seed: int, temperature: float = 0.8
) -> str:
    """Up to `n` new tokens after `prompt`, as text; the same seed gives the same text. Keeps the model's mode."""
    ids = [int(i) for i in tokenizer.encode(prompt)]
    start = ids if tokenizer.bos is None else [tokenizer.bos, *ids]
    generator = torch.Generator().manual_seed(seed)
    window = model.config.max_position_embeddings
    tokens, new = start or [tokenizer.eos], []
    was_training = model.training
    model.eval()
    try:
        for _ in range(n):
            context = torch.tensor([tokens[-window:]], device=model.device)
            with torch.inference_mode():
                logits = model(context).logits[0, -1].float().cpu()
            token = int(torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator))
            if token == tokenizer.eos:
                break
            tokens.append(token)
            new.append(token)
    finally:
        model.train(was_training)
    return tokenizer.decode(new)


def _swap(staging: Path, folder: Path) -> None:
    """Put `staging` in the place of `folder`."""
    if not folder.exists():
        staging.rename(folder)
        return
    old = staging.with_name(staging.name + ".old")
    folder.rename(old)
    staging.rename(folder)
    shutil.rmtree(old)
