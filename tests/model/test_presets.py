"""Presets: sizes without allocation, and shapes that equal ranks can share."""

import pytest

from subnet.config import ModelConfig
from subnet.model.presets import PRESETS, parameter_count, parameter_shapes


def preset(name: str) -> ModelConfig:
    return ModelConfig(preset=name, **PRESETS[name])


@pytest.mark.parametrize(
    ("name", "count"),
    [("tiny", 1_379_136), ("10m", 10_002_240), ("150m", 214_983_680), ("1b", 1_100_048_384)],
)
def test_exact_counts(name: str, count: int) -> None:
    assert parameter_count(preset(name)) == count


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_first_dimension_is_a_multiple_of_8(name: str) -> None:
    shapes = parameter_shapes(preset(name))
    assert list(shapes) == sorted(shapes)
    assert all(shape[0] % 8 == 0 for shape in shapes.values())
