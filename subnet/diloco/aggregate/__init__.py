"""From everybody's contributions to one: weights from declarations, then a rule, the same bits on every machine.

Not a judge of contributions (that is `subnet.scoring`); the rules, what each withstands and what it costs are in
docs/aggregation.md. An auditor who holds the listed contributions recomputes any reducer's part exactly.
"""

from subnet.diloco.aggregate.rules import CenteredClip, Mean, Rule, Trimmed, reduce_part
from subnet.diloco.aggregate.weights import clip_factors, mean_weights, norm

__all__ = ["CenteredClip", "Mean", "Rule", "Trimmed", "clip_factors", "mean_weights", "norm", "reduce_part"]
