"""Text to token ids and back: bytes, or a `tokenizers` JSON file.

Not a tokenizer trainer. The bytes tokenizer needs no file and no download; its ids are the byte values, so any text
or binary is representable, followed by a begin and an end mark.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from subnet.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RawTokenizer
    from transformers import PreTrainedTokenizerFast

BYTE_BOS, BYTE_EOS = 256, 257
_BYTE_BOS_TEXT, _BYTE_EOS_TEXT = "<|bos|>", "<|eos|>"
_BOS_NAMES = ("<s>", "<|begin_of_text|>", "<bos>", "<|bos|>", "<|startoftext|>")
_EOS_NAMES = ("</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "<|endoftext|>")


class ByteTokenizer:
    """Ids 0..255 are byte values, 256 begins a document, 257 ends it."""

    name = "bytes"
    identity = "bytes"
    """What the manifest records: peers with equal identities tokenise alike."""
    vocab_size = 258
    bos: int | None = BYTE_BOS
    eos = BYTE_EOS

    def encode(self, text: str | bytes) -> np.ndarray:
        """uint16 ids, one per byte of the UTF-8 text; no special tokens."""
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return np.frombuffer(raw, dtype=np.uint8).astype(np.uint16)

    def frame(self, texts: Sequence[bytes]) -> np.ndarray:
        """The ids of many documents in a row, each between its begin and end marks; uint16."""
        begin, end = np.array([BYTE_BOS], np.uint16), np.array([BYTE_EOS], np.uint16)
        return np.concatenate([piece for text in texts for piece in (begin, self.encode(text), end)])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids below 256; bytes that are not UTF-8 become U+FFFD."""
        return bytes(i for i in map(int, ids) if i < 256).decode("utf-8", "replace")

    def to_hugging_face(self, model_max_length: int) -> PreTrainedTokenizerFast:
        """A merge-free byte-level BPE whose ids equal the byte values, with bos and eos as special tokens."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        byte_chars = _byte_level_alphabet()
        raw = Tokenizer(models.BPE(vocab={char: byte for byte, char in enumerate(byte_chars)}, merges=[]))
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        raw.decoder = decoders.ByteLevel()
        raw.add_special_tokens([AddedToken(_BYTE_BOS_TEXT, special=True), AddedToken(_BYTE_EOS_TEXT, special=True)])
        return _fast_tokenizer(raw, _BYTE_BOS_TEXT, _BYTE_EOS_TEXT, model_max_length)


class JsonTokenizer:
    """A tokenizer of the `tokenizers` library, from its JSON file; it must have an end-of-text token."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        try:
            raw = path.read_bytes()
            self._raw = Tokenizer.from_buffer(raw)
            # the file may ask for either, for models of one fixed length; of a corpus nothing may be cut off
            self._raw.no_truncation()
            self._raw.no_padding()
        except OSError as e:
            raise UserError(f"cannot read the tokenizer {path}: {e.strerror}") from e
        except Exception as e:  # the library raises bare Exception for a malformed file
            raise UserError(f"{path} is not a tokenizer of the `tokenizers` library: {str(e)[:200]}") from e
        vocab = self._raw.get_vocab(with_added_tokens=True)
        self._bos_text = next((text for text in _BOS_NAMES if text in vocab), None)
        eos_text = next((text for text in _EOS_NAMES if text in vocab), None)
        if eos_text is None:
            raise UserError(f"the tokenizer {path} has no end-of-text token; one of {', '.join(_EOS_NAMES)} is needed")
        self._eos_text: str = eos_text
        self.name = path.name
        self.identity = hashlib.blake2b(raw, digest_size=32).hexdigest()
        self.vocab_size = max(vocab.values()) + 1
        self.bos = None if self._bos_text is None else vocab[self._bos_text]
        self.eos = vocab[eos_text]

    def encode(self, text: str | bytes) -> np.ndarray:
        """uint16 ids, or uint32 above 65,536 of them; bytes that are not UTF-8 become U+FFFD; no special tokens."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        ids = self._raw.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.uint16 if self.vocab_size <= 2**16 else np.uint32)

    def frame(self, texts: Sequence[bytes]) -> np.ndarray:
        """The ids of many documents in a row, each between its begin (if any) and end marks; as `encode` gives them."""
        begin = [] if self.bos is None else [self.bos]
        ids = array("H" if self.vocab_size <= 2**16 else "I")
        for found in self._raw.encode_batch_fast(
            [t.decode("utf-8", "replace") for t in texts], add_special_tokens=False
        ):
            ids.extend(begin)
            ids.extend(found.ids)
            ids.append(self.eos)
        return np.frombuffer(ids, dtype=np.dtype(ids.typecode))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens are left out."""
        return self._raw.decode([int(i) for i in ids], skip_special_tokens=True)

    def to_hugging_face(self, model_max_length: int) -> PreTrainedTokenizerFast:
        """The same tokenizer for `transformers`."""
        return _fast_tokenizer(self._raw, self._bos_text, self._eos_text, model_max_length)


def load_tokenizer(name: str, folder: Path | None) -> ByteTokenizer | JsonTokenizer:
    """The tokenizer of a run: "bytes", or a JSON file in the data folder. Raises UserError."""
    if name == "bytes":
        return ByteTokenizer()
    if folder is None:
        raise UserError(f"the tokenizer {name} is a file of the data folder, but no data path is set")
    return JsonTokenizer(folder / name)


def _fast_tokenizer(raw: RawTokenizer, bos: str | None, eos: str, model_max_length: int) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=bos,
        eos_token=eos,
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
    )


def _byte_level_alphabet() -> list[str]:
    """The printable character that byte-level BPE (GPT-2) writes for each byte value."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    stand_ins = iter(range(256, 512))
    return [chr(b if b in printable else next(stand_ins)) for b in range(256)]
