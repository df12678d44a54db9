"""How much of its part in a round's exchange a member did, from signed words and from what this validator pulled.

Not what its contribution is worth. No single word decides: a member that one reducer leaves out although everybody
else has it, this validator included, did its part.
"""

from __future__ import annotations

from subnet.exchange.round import Update


def participation(update: Update, hotkey: str, delivered: bool, redundancy: int) -> float | None:
    """0..1, or None where nothing can be said: no word on any part was heard here. For a rostered hotkey:

        delivered_parts * (1 + reduced_parts) / 2

    `delivered_parts`: share of the parts that hold it, in the word followed or any other not proven wrong; the worst
    one is forgiven if it `delivered` the whole contribution to this validator, in time and under its committed root. 0
    below a half: so many reducers do not err, and who shows its work to validators alone does none for the swarm.
    `reduced_parts`: share of the parts it had to reduce that it signed for and that could be had, 1 for who had none
    to reduce because it cannot be dialled; a reducer proven to have signed for something else (`update.faults`) gets 0
    for everything. Who is listed but not averaged has only its contribution to deliver.
    """
    if hotkey not in {c.hotkey for c in update.roster.mean}:
        return 1.0 if delivered else 0.0
    if hotkey in update.faults:
        return 0.0
    spoken = {part: [by.get(r) for r in by if r not in update.faults] for part, by in update.words.items()}
    for part, word in update.results.items():
        spoken.setdefault(part, []).append(word)
    heard = {part: words for part, words in spoken.items() if words}
    if not heard:
        return None
    held = sum(any(word is not None and hotkey in word.included for word in words) for words in heard.values())
    if 2 * held < len(heard):
        return 0.0
    if delivered and held < len(heard):
        held += 1
    parts = len({*update.results, *update.missing})
    duties = update.roster.duties(hotkey, parts, redundancy)
    done = [hotkey in update.words.get(part, {}) and part not in update.missing for part in duties]
    reduced = sum(done) / len(done) if done else 1.0
    return held / len(heard) * (1 + reduced) / 2
