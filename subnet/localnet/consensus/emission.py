"""Emission: what a block mints, how it accrues per subnet, and who gets it when the epoch runs.

Integer rao throughout, nothing created or lost to rounding: every split adds up to what went in.
Rules follow Subtensor's coinbase (`block_emission`, `emit_to_subnets`, `distribute_emission`), which drops the dust.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from subnet.localnet.consensus.yuma import stake_weights

RAO = 1_000_000_000
"""rao per TAO, and per alpha."""
MAX_SUPPLY = 21_000_000 * RAO
"""Cap of TAO, and of each subnet's alpha, in rao."""
BASE_EMISSION = RAO
"""Emission per block before the first halving, of TAO and of each subnet's alpha, in rao."""
OWNER_CUT = 11_796
"""Subnet owner's share of a subnet's alpha emission, u16 proportion (18 %)."""
DEFAULT_TAKE = 11_796
"""A validator's default cut of its stakers' dividends, u16 proportion (18 %)."""
U16_MAX = 0xFFFF


def block_emission(issuance: int) -> int:
    """rao minted per block once `issuance` rao exist; the same curve serves TAO and each subnet's alpha.

    1.0 until half of the 21 M cap is out, then half as much each time the remainder halves: 0.5 per block
    for TAO since 10.5 M were issued (December 2025), 0.25 from 15.75 M, 0 at the cap.

    Raises ValueError for a negative issuance.
    """
    if issuance < 0:
        raise ValueError(f"issuance must not be negative, got {issuance}")
    remaining = MAX_SUPPLY - issuance
    if remaining <= 0:
        return 0
    halvings = (MAX_SUPPLY // remaining).bit_length() - 1
    return BASE_EMISSION >> halvings


def apportion(total: int, shares: Sequence[int]) -> list[int]:
    """Split `total` in proportion to `shares` by largest remainder; ties go to the lower index.

    The parts sum to `total` exactly, and each is within 1 of its exact share. All zero if all shares are zero.

    Raises ValueError for a negative total or share.
    """
    if total < 0 or any(share < 0 for share in shares):
        raise ValueError("total and shares must not be negative")
    whole = sum(shares)
    if whole == 0:
        return [0] * len(shares)
    parts = [total * share // whole for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: -(total * shares[i] % whole))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts


def root_proportion(root_tao: int, tao_weight: int, alpha_issuance: int) -> Fraction:
    """Root's part of a subnet's validator emission: weighted root TAO over itself plus the subnet's alpha.

    root_tao, alpha_issuance in rao; tao_weight the runtime's u64 proportion.
    """
    weighted = Fraction(root_tao * tao_weight, 2**64 - 1)
    return weighted / (weighted + alpha_issuance) if weighted else Fraction(0)


@dataclass(frozen=True)
class Pending:
    """Alpha of one subnet accrued since its last epoch, rao (`Pending*Emission` in storage)."""

    owner: int = 0
    miners: int = 0
    validators: int = 0
    root: int = 0

    @property
    def epoch(self) -> int:
        """What the epoch divides by consensus (`EpochInputs.rao_emission`): all but the owner's cut."""
        return self.miners + self.validators + self.root

    @property
    def total(self) -> int:
        return self.owner + self.epoch


def accrue(pending: Pending, alpha_out: int, owner_cut: int = OWNER_CUT, root: Fraction = Fraction(0)) -> Pending:
    """Add one block's alpha emission: the owner's cut, then half to miners, half to validators.

    alpha_out: rao, `block_emission(alpha issuance of the subnet)`; owner_cut: u16 proportion, 0 where the owner
    switched it off; root: `root_proportion`, the part of the validators' half set aside for root stakers
    (0 where root dividends are not paid: the runtime pays them only while the subnets' EMA prices sum above 1).
    """
    owner = alpha_out * owner_cut // U16_MAX
    miners = (alpha_out - owner) // 2
    validators = alpha_out - owner - miners
    to_root = int(validators * root)
    return Pending(
        owner=pending.owner + owner,
        miners=pending.miners + miners,
        validators=pending.validators + validators - to_root,
        root=pending.root + to_root,
    )


@dataclass(frozen=True)
class Payout:
    """Who gets an epoch's alpha, rao, lists indexed by uid. `total` equals the pending total that was split."""

    owner: int
    """To the owner hotkey, as stake of the owner coldkey."""
    miners: list[int]
    """Incentive, staked to the miner's own hotkey for its coldkey."""
    validators: list[int]
    """Dividends on alpha stake, before the take: split each with `split_dividends`."""
    root: list[int]
    """Dividends on root stake, before the take."""
    withheld: int
    """Incentive aimed at hotkeys of the owner: burned (issuance stays) or recycled (issuance shrinks), not paid."""
    unclaimed: int
    """Nobody was entitled to it (no stake at all); it stays issued and belongs to no account."""

    @property
    def total(self) -> int:
        paid = self.owner + sum(self.miners) + sum(self.validators) + sum(self.root)
        return paid + self.withheld + self.unclaimed


def distribute(
    pending: Pending,
    server_emission: Sequence[int],
    validator_emission: Sequence[int],
    *,
    owner_uids: Collection[int] = (),
    alpha_stake: Sequence[int],
    root_stake: Sequence[int],
    tao_weight: int = 0,
) -> Payout:
    """Divide a subnet's pending alpha by the outcome of its epoch.

    server_emission, validator_emission: `EpochResult`'s arrays, used as proportions. Without any incentive the
    miners' half goes to the validators. owner_uids: uids of the owner hotkey and of the owner coldkey's other
    hotkeys. A validator's dividends count as root or alpha dividends in the proportion of its weighted root
    stake to its alpha stake; each pot is then divided by those.

    Raises ValueError if the per-uid sequences differ in length.
    """
    servers = [int(x) for x in server_emission]
    miners = apportion(pending.miners, servers)
    to_validators = pending.validators + pending.miners - sum(miners)
    withheld = sum(miners[uid] for uid in owner_uids)
    miners = [0 if uid in owner_uids else reward for uid, reward in enumerate(miners)]

    totals = stake_weights(alpha_stake, root_stake, tao_weight)
    on_root, on_alpha = [], []
    for dividend, total, alpha in zip(map(int, validator_emission), totals, alpha_stake, strict=True):
        root_part = dividend * (total - (alpha << 32)) // total if total else 0
        on_root.append(root_part)
        on_alpha.append(dividend - root_part)
    if not any(on_root):
        to_validators, pending = to_validators + pending.root, replace(pending, root=0)
    validators = apportion(to_validators, on_alpha)
    root = apportion(pending.root, on_root)
    return Payout(
        owner=pending.owner,
        miners=miners,
        validators=validators,
        root=root,
        withheld=withheld,
        unclaimed=to_validators - sum(validators) + pending.root - sum(root),
    )


def split_dividends(amount: int, owner: str, stakes: Mapping[str, int], take: int = DEFAULT_TAKE) -> dict[str, int]:
    """Divide a hotkey's dividends over the coldkeys behind it; the values sum to `amount` rao.

    The hotkey's `owner` coldkey gets `take` (u16 proportion) first, then everybody, the owner too, by their
    `stakes` on the hotkey (coldkey -> rao). With no stake at all the owner gets everything.
    """
    cut = amount * take // U16_MAX
    if not any(stakes.values()):
        cut = amount
    parts = apportion(amount - cut, list(stakes.values()))
    gains = dict(zip(stakes, parts, strict=True))
    gains[owner] = gains.get(owner, 0) + cut
    return gains
