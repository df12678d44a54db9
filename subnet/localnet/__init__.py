"""The embedded development chain: one process that speaks the Subtensor's JSON-RPC, so that the unmodified SDK and
btcli work with it.

A program of its own: nothing else in the project imports it, and it imports nothing else of the project. Other programs
run it by `Localnet` (`process`), other tests by `pytest_plugin`. From the outside in: `__main__` (flags), `node`
(time), `rpc` and `methods` (the wire), `chain` (blocks), `extrinsic` and `mempool` (what may enter), `executive`,
`dispatch` and `pallets` (what it does), `epoch` with `consensus` (who is paid, `schedule`: when), `runtime_api` (what
can be asked), `explorer` (a page that shows it), `ledger`, `state` and `store` (what is kept, `genesis`: at first),
`metadata` and `runtime` (how clients read it), `shield` (what clients send sealed).
"""

from subnet.localnet.process import Localnet

__all__ = ["Localnet"]
