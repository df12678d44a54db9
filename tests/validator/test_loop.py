"""What a validator says of its scoring."""

import math

from subnet.scoring.loss import LossScore
from subnet.scoring.table import Observation
from subnet.validator.judgement import WORTHLESS
from subnet.validator.loop import _told


def observed(held_out):
    return Observation(LossScore(0.1, 0.0, held_out, 0.01), 1.0, digest_ok=True)


def test_scores_are_told_best_first_and_what_was_not_shown_does_not_count():
    nothing, gone = (Observation(loss, 1.0, digest_ok=True) for loss in (WORTHLESS, None))
    scores = {"5AAAAAAAAA": observed(0.0123), "5BBBBBBBBB": observed(0.5), "5C": nothing, "5D": gone}
    assert _told(scores) == "2 of 4 contributions (loss drops: 5BBBBBBB +0.5000, 5AAAAAAA +0.0123)"
    assert _told({"5C": nothing}) == "0 of 1 contributions"
    assert "-inf" in _told({"5E": observed(-math.inf)})
    many = {f"5{i:09d}": observed(0.1 * i) for i in range(100)}
    assert _told(many).count("+") == 8
