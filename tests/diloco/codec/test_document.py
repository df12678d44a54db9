"""docs/codecs.md says what the code does: its test vectors are read out of it and checked."""

import re
from pathlib import Path

import pytest
import torch

from subnet.diloco.codec import Codec, CodecError, Fp16, Fp32, Int4, Int8, Sparse
from subnet.diloco.codec.int4 import LEVELS

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "codecs.md").read_text()
VECTORS = re.findall(r"^```vector (\S+)([^\n]*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
KINDS: dict[str, type[Codec]] = {"fp32": Fp32, "fp16": Fp16, "int8": Int8, "int4": Int4, "sparse": Sparse}


def test_every_codec_has_a_vector_and_a_refusal() -> None:
    assert {name for name, _, _ in VECTORS} == set(KINDS)
    for kind in KINDS:
        assert any("refused" in body for name, _, body in VECTORS if name == kind)


@pytest.mark.parametrize(("name", "settings", "body"), VECTORS, ids=lambda text: text.split("\n")[0])
def test_vector(name: str, settings: str, body: str) -> None:
    codec = KINDS[name](**{key: int(value) for key, value in (pair.split("=") for pair in settings.split())})
    lines = [line.split(maxsplit=1) for line in body.splitlines()]
    known = dict(line for line in lines if line[0] != "refused")
    values, decoded = (torch.tensor([float(v) for v in known[key].split()]) for key in ("values", "decoded"))
    data = bytes.fromhex(known["bytes"])
    assert codec.encode(values) == data
    found = codec.decode(data, len(values))
    assert torch.equal(found, decoded)
    assert len(data) <= codec.max_encoded_size(len(values))
    if "levels" in known:
        assert [int(level) for level in known["levels"].split()] == list(LEVELS)
    for kind, leaf in lines:
        if kind == "refused":
            with pytest.raises(CodecError):
                codec.decode(bytes.fromhex(leaf), len(values))
