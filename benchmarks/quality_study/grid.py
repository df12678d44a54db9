"""Which cells the study has, the most telling first.

Not their results. Tuning is done with one seed, and what is compared is run with `SEEDS`.
"""

from __future__ import annotations

from dataclasses import replace

from quality_study.cells import Cell

SEEDS = (1, 2, 3)


def cells() -> list[Cell]:
    """All cells, in the order they are run; none twice."""
    tuned = [*_ddp(), *_outer(), *_rules(), *_codecs(), *_few_rounds()]
    compared = [replace(cell, seed=seed) for seed in SEEDS for cell in _compared()]
    return list(dict.fromkeys([*tuned, *compared, *_many_rounds(), *_inner(), *_delayed(), *_equal_time()]))


def _compared() -> list[Cell]:
    """What is run with every seed."""
    return [Cell("ddp", 4e-3), _PLAIN, _coded(_PLAIN, "int4"), _SPARSE, replace(_SPARSE, over="all")]


def _ddp() -> list[Cell]:
    """DDP's learning rate, and a miner alone."""
    return [Cell("ddp", 4e-3), Cell("ddp", 8e-3), Cell("alone", 4e-3)]


def _outer() -> list[Cell]:
    """Inner learning rate, outer learning rate and momentum, without compression."""
    pairs = [(0.7, 0.3), (0.7, 0.0), (1.0, 0.0), (1.0, 0.3), (1.3, 0.0), (0.9, 0.5), (0.7, 0.9), (0.5, 0.5)]
    return [
        *(replace(_PLAIN, outer_lr=lr, momentum=mu) for lr, mu in pairs),
        replace(_PLAIN, lr=8e-3),
        replace(_PLAIN, lr=8e-3, outer_lr=0.9, momentum=0.5),
        replace(_PLAIN, lr=2e-3, outer_lr=1.0, momentum=0.0),
    ]


def _rules() -> list[Cell]:
    """Who keeps what a reduced part leaves out, and who counts in its mean."""
    over_all = replace(_SPARSE, over="all")
    short = replace(_SPARSE, reduced="sparse-64")
    return [
        short,
        replace(short, kept_by="reducer"),
        _SPARSE,
        replace(_SPARSE, kept_by="reducer"),
        replace(_SPARSE, outer_lr=0.7),
        over_all,
        replace(over_all, kept_by="reducer"),
        replace(over_all, reduced="fp32", kept_by="reducer"),
        replace(over_all, reduced="sparse-64"),
        replace(over_all, reduced="sparse-64", kept_by="reducer"),
    ]


def _codecs() -> list[Cell]:
    """Codec and H, all else equal."""
    int4 = _coded(_PLAIN, "int4")
    return [int4, replace(int4, h=15), replace(int4, h=100), _coded(_PLAIN, "int8"), replace(_SPARSE, h=30)]


def _inner() -> list[Cell]:
    """Muon in the place of AdamW."""
    muon = replace(_PLAIN, inner="muon")
    return [Cell("ddp", 4e-3, "muon"), muon, _coded(muon, "int4"), replace(_SPARSE, inner="muon")]


def _few_rounds() -> list[Cell]:
    """A demo's ten rounds."""
    few = replace(_PLAIN, h=15, steps=150)
    pairs = [(0.7, 0.3), (0.7, 0.5), (0.5, 0.5), (1.0, 0.0), (0.7, 0.9)]
    return [
        Cell("ddp", 4e-3, steps=150),
        *(replace(few, outer_lr=lr, momentum=mu) for lr, mu in pairs),
        replace(few, inner="muon"),
        replace(_SPARSE, steps=150),
    ]


def _many_rounds() -> list[Cell]:
    """Eighty rounds and twice the tokens."""
    many = replace(_coded(_PLAIN, "int4"), h=15, steps=1200)
    return [
        Cell("ddp", 4e-3, steps=1200),
        many,
        replace(many, momentum=0.9),
        replace(many, momentum=0.7),
        replace(_SPARSE, steps=1200),
    ]


def _delayed() -> list[Cell]:
    """Overlap of exchange and training: a third of a round's steps ahead of the outer parameters, or all of them."""
    plain = _coded(_PLAIN, "int4")
    few = _coded(replace(_PLAIN, h=15, steps=150, outer_lr=0.5, momentum=0.5), "int4")
    many = replace(plain, h=15, steps=1200, momentum=0.7)
    return [
        *(replace(plain, seed=seed, ahead=ahead) for seed in SEEDS for ahead in (10, 30)),
        *(replace(few, seed=seed, ahead=ahead) for seed in SEEDS for ahead in (0, 5, 15)),
        *(replace(many, ahead=ahead) for ahead in (5, 15)),
        *(replace(_DEMO, seed=seed, ahead=ahead) for seed in SEEDS for ahead in (0, 5, 15)),
        Cell("ddp", 2e-3, model="demo", steps=150),
        Cell("ddp", 4e-3, model="demo", steps=150),
    ]


def _equal_time() -> list[Cell]:
    """Without overlap, the rounds that fit into the time of the overlapped ones: three quarters, or half of them."""
    plain = _coded(_PLAIN, "int4")
    many = replace(plain, h=15, momentum=0.7)
    shorter = [(_DEMO, 105), (_DEMO, 75), (plain, 450), (plain, 300)]
    return [
        *(replace(cell, steps=steps, seed=seed) for cell, steps in shorter for seed in SEEDS),
        *(replace(many, steps=steps) for steps in (900, 600)),
        *(Cell("ddp", cell.lr, model=cell.model, steps=steps) for cell, steps in [*shorter, (many, 900)]),
    ]


def _coded(cell: Cell, codec: str) -> Cell:
    return replace(cell, codec=codec, reduced=codec)


_PLAIN = Cell("diloco", 4e-3, h=30, outer_lr=0.7, momentum=0.3)
_DEMO = Cell("diloco", 2e-3, h=15, outer_lr=0.7, momentum=0.5, codec="int8", reduced="int8", model="demo", steps=150)
_SPARSE = Cell(
    "diloco",
    4e-3,
    h=15,
    outer_lr=1.0,
    momentum=0.0,
    codec="sparse-64",
    reduced="sparse-256",
    over="senders",
    kept_by="senders",
    decay=0.95,
)
