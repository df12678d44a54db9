"""Which DHT records this peer stores, hands on and believes: the rules upstream leaves open.

Runs as hivemind's record validator inside the DHT process, and once more in the neuron on what that process hands
over. Without it anybody may fill the memory of every peer or overwrite anybody's keys.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

import msgpack
from hivemind.dht.crypto import DHTRecord, RecordValidatorBase
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.utils import MSGPackSerializer

from subnet.swarm.identity import Verify
from subnet.swarm.peers import open_peer
from subnet.swarm.records import (
    MAX_LEASE_S,
    MAX_RECORD_BYTES,
    BadRecord,
    Record,
    dht_subkey,
    lease_signed,
    open_record,
    parse_record,
    record_key,
    unseal,
)

CLOCK_SKEW_S = 5.0
"""How far a peer's clock may run ahead of ours, in seconds."""
UNREGISTERED = "(not registered)"
"""Whom a refusal is counted against when the claimed author is nobody we know: names are free, counters are not."""

_MAX_DHT_BYTES = MAX_RECORD_BYTES + 128
_SEEN = 8192
_SLOTS_PER_ROUND = 4


class RecordGate(RecordValidatorBase):
    """Accepts a record of a registered hotkey, of this run and the current rounds, under its own key, with its lease.

    `rejected` counts refusals by (hotkey, reason). `now` is the clock the leases are read by (Unix seconds).
    """

    def __init__(self, run_id: bytes, verify: Verify, now: Callable[[], float] = time.time) -> None:
        self.run_id = run_id
        self.verify = verify
        self.now = now
        self.registered: frozenset[str] = frozenset()
        self._rounds = range(0)
        self.rejected: Counter[tuple[str, str]] = Counter()
        self._seen: OrderedDict[bytes, Record] = OrderedDict()
        self._slots: dict[int, dict[str, set[str]]] = {}

    @property
    def rounds(self) -> range:
        """The rounds of which records are accepted."""
        return self._rounds

    @rounds.setter
    def rounds(self, rounds: range) -> None:
        self._rounds = rounds
        self._slots = {round_: slots for round_, slots in self._slots.items() if round_ in rounds}

    def admit(self, value: bytes) -> tuple[Record, float]:
        """The verified record in a DHT value and the Unix time until which it counts.

        Signatures already seen are not verified twice.

        Raises:
            BadRecord: this peer must not keep or use it.
        """
        data, expires = unseal(value)
        record = parse_record(data, run_id=self.run_id)
        if record.hotkey not in self.registered:
            raise BadRecord("hotkey not registered")
        if record.round not in self.rounds if record.kind != "peer" else record.round != 0:
            raise BadRecord("round out of date")
        if not 0.0 < expires - self.now() <= MAX_LEASE_S + CLOCK_SKEW_S:
            raise BadRecord("expiry")
        digest = hashlib.blake2b(value, digest_size=32).digest()
        known = self._seen.get(digest)
        if known is None:
            known = open_record(data, run_id=self.run_id, verify=self.verify)
            if not lease_signed(value, known.hotkey, self.verify):
                raise BadRecord("lease signature")
            if known.kind == "peer":
                open_peer(known, run_id=self.run_id, verify=self.verify)
            self._take_slot(known)
            self._seen[digest] = known
            if len(self._seen) > _SEEN:
                self._seen.popitem(last=False)
        return known, expires

    def _take_slot(self, record: Record) -> None:
        """A hotkey has one part to publish a round; the few more allow for a round that starts again."""
        if record.subkey:
            taken = self._slots.setdefault(record.round, {}).setdefault(record.hotkey, set())
            if len(taken | {record.subkey}) > _SLOTS_PER_ROUND:
                raise BadRecord("too many records in one round")
            taken.add(record.subkey)

    def validate(self, record: DHTRecord) -> bool:
        """hivemind's question before it stores or returns a record."""
        author = UNREGISTERED
        try:
            if len(record.value) > _MAX_DHT_BYTES or len(record.subkey) > 128:
                raise BadRecord("size")
            try:
                value = msgpack.unpackb(record.value, max_ext_len=0, max_map_len=0, max_array_len=0)
                subkey = msgpack.unpackb(record.subkey, raw=False, max_ext_len=0, max_map_len=0, max_array_len=0)
            except (ValueError, msgpack.UnpackException) as error:
                raise BadRecord("encoding") from error
            if not isinstance(value, bytes) or not isinstance(subkey, str):
                raise BadRecord("encoding")
            if subkey.partition(":")[0] in self.registered:
                author = subkey.partition(":")[0]
            signed, expires = self.admit(value)
            key = _dht_key(self.run_id, signed.kind, signed.round)
            if (record.key, subkey) != (key, dht_subkey(signed.hotkey, signed.subkey)):
                raise BadRecord("stored under another's key")
            if record.expiration_time != expires:
                raise BadRecord("expiry is not the leased one")
        except BadRecord as error:
            self.rejected[author, str(error)] += 1
            return False
        return True

    def keep_valid(self, key_bytes: bytes, dictionary: DictionaryDHTValue) -> bool:
        """Drop the bad entries of a dictionary another peer sent, and keep the rest.

        Upstream refuses the whole dictionary for one bad entry; then a single record that some peers already hold
        for stale or unregistered would hide everybody's.
        """
        with dictionary.freeze():
            for subkey, (value, expiration) in list(dictionary.items()):
                if not self.validate(DHTRecord(key_bytes, MSGPackSerializer.dumps(subkey), value, expiration)):
                    del dictionary[subkey]
        return True

    def drain_rejected(self) -> dict[tuple[str, str], int]:
        """The refusals counted since the last call."""
        counted = dict(self.rejected)
        self.rejected.clear()
        return counted


def _dht_key(run_id: bytes, kind: str, round_: int) -> bytes:
    return DHTID.generate(source=record_key(run_id, kind, round_)).to_bytes()
