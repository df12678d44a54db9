"""How the vectors of a run are cut, encoded and brought together: what a reducer, an auditor and a validator share.

A bundle without behaviour of its own; the parts are in `layout`, `codec` and `aggregate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from subnet.config import AggregateConfig, RunConfig
from subnet.diloco.aggregate import CenteredClip, Mean, Rule, Trimmed
from subnet.diloco.codec import Codec, Sparse, codec_of, reduced_codec_of
from subnet.diloco.layout import Layout


@dataclass(frozen=True)
class Scheme:
    """`codec` encodes contributions, `reduced` the parts made of them by `rule`."""

    layout: Layout
    codec: Codec
    reduced: Codec
    rule: Rule

    @property
    def selective(self) -> bool:
        """Whether reduced parts leave elements out, which decode to zero.

        What was sent of those is then still owed by whoever sent it; only the error of the others is the reducer's. A
        dense codec's zeros are part of its rounding: members that cancelled out would owe their noise for ever.
        """
        return isinstance(self.reduced, Sparse)

    @classmethod
    def of(cls, run: RunConfig, layout: Layout) -> Scheme:
        """The scheme that a run names."""
        return cls(layout, codec_of(run.codec), reduced_codec_of(run.codec), rule_of(run.aggregate))


def rule_of(cfg: AggregateConfig) -> Rule:
    """The aggregation rule that a run names."""
    if cfg.rule == "trimmed":
        return Trimmed(cfg.trim)
    if cfg.rule == "centered_clip":
        return CenteredClip(cfg.radius, cfg.iterations)
    return Mean(cfg.over)
