"""Which cells the study has, the most telling first.

Not their results. Tuning is done with one seed, and what is compared is run with `SEEDS`.
"""

from __future__ import annotations

from dataclasses import replace

from quality_study.cells import Cell

SEEDS = (1, 2, 3)


def cells() -> list[Cell]:
    """All cells, in the order they are run; none twice."""
    return list(dict.fromkeys([*_ddp(), *_rules(), *_outer()]))


def _ddp() -> list[Cell]:
    """DDP's learning rate."""
    return [Cell("ddp", lr) for lr in (4e-3, 8e-3)]


def _rules() -> list[Cell]:
    """Who keeps what a reduced part leaves out, and who counts in its mean."""
    base = Cell("diloco", 4e-3, h=15, outer_lr=1.0, momentum=0.0, codec="sparse-64", reduced="sparse-64", decay=0.95)
    return [
        base,
        replace(base, kept_by="senders"),
        replace(base, reduced="sparse-256"),
        replace(base, reduced="sparse-256", kept_by="senders"),
        replace(base, reduced="fp32"),
        replace(base, reduced="sparse-256", over="senders", kept_by="senders"),
        replace(base, kept_by="senders", over="senders"),
        replace(base, kept_by="nobody"),
        replace(base, reduced="sparse-256", kept_by="senders", decay=1.0),
        replace(base, reduced="sparse-256", kept_by="senders", outer_lr=0.7, momentum=0.5),
    ]


def _outer() -> list[Cell]:
    """Inner learning rate, outer learning rate and momentum, without compression."""
    base = Cell("diloco", 4e-3, h=30)
    return [
        replace(base, outer_lr=0.9, momentum=0.5),
        replace(base, outer_lr=0.7, momentum=0.9),
        replace(base, outer_lr=0.9, momentum=0.5, lr=8e-3),
        replace(base, outer_lr=1.0, momentum=0.3),
        replace(base, outer_lr=0.7, momentum=0.6),
        replace(base, outer_lr=1.0, momentum=0.0),
    ]
