"""The unmodified SDK against the running node: what it writes, what it reads back, and the errors it raises by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import bittensor as bt
import pytest
from bittensor.result import ChainError

from subnet.localnet import Localnet
from tests.conftest import dev

DEADLINE = 60.0


def run(net: Localnet, talk: Callable[[bt.Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with bt.Client(net.endpoint) as client:
            await asyncio.wait_for(talk(client), DEADLINE)

    asyncio.run(main())


async def succeed(client: bt.Client, intent: Any, wallet: Any) -> Any:
    result = await client.execute(intent, wallet)
    assert result.success, result.message
    return result


async def fund(net: Localnet, client: bt.Client, *wallets: Any, tao: float = 3000) -> None:
    for wallet in wallets:
        await succeed(client, bt.Transfer(dest_ss58=wallet.coldkey_ss58, amount_tao=tao), dev("alice"))


async def subnet(net: Localnet, client: bt.Client, owner: Any) -> int:
    await fund(net, client, owner, tao=20_000)
    netuid = (await succeed(client, bt.RegisterSubnet(), owner)).data["netuid"]
    await succeed(client, bt.StartCall(netuid=netuid), owner)
    return netuid


async def register(client: bt.Client, netuid: int, *wallets: Any) -> None:
    """The SDK's nonce cache lags a shielded submission by one, so a wallet's next extrinsic needs a fresh client."""
    for wallet in wallets:
        await succeed(client, bt.BurnedRegister(netuid=netuid), wallet)


async def refusal(client: bt.Client, intent: Any, wallet: Any) -> str:
    """The name of the error, whether the SDK found it before sending or the chain after."""
    try:
        result = await client.execute(intent, wallet)
    except ChainError as error:
        return error.name or str(error)
    assert not result.success
    return result.error.name


def test_a_transfer_arrives_and_its_fee_was_the_one_quoted(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        wallet = dev("transfer")
        address = wallet.coldkey_ss58
        before = await client.balances.balance(dev("alice").coldkey_ss58)
        plan = await client.plan(bt.Transfer(dest_ss58=address, amount_tao=5), dev("alice"))
        result = await succeed(client, bt.Transfer(dest_ss58=address, amount_tao=5), dev("alice"))
        assert await client.balances.balance(address) == bt.Balance.from_tao(5)
        after = await client.balances.balance(dev("alice").coldkey_ss58)
        assert before - after == bt.Balance.from_tao(5) + result.fee
        assert abs(plan.fee.rao - result.fee.rao) <= 40
        poor = bt.Transfer(dest_ss58=dev("alice").coldkey_ss58, amount_tao=500)
        assert await refusal(client, poor, wallet) == "FundsUnavailable"

    run(localnet, talk)


def test_a_subnet_lives_from_registration_to_emission(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        owner, validator, miner = (dev(name) for name in ("live-o", "live-v", "live-m"))
        netuid = await subnet(localnet, client, owner)
        await fund(localnet, client, validator, miner)
        await register(client, netuid, validator, miner)
        hot = validator.hotkey_ss58
        async with bt.Client(localnet.endpoint) as fresh:
            await succeed(fresh, bt.AddStake(netuid=netuid, amount_tao=20, hotkey_ss58=hot), validator)
        await succeed(client, bt.ServeAxon(netuid=netuid, ip="10.1.2.3", port=8091), miner)
        info = {"fields": [{"Raw5": b"hello"}]}
        call = bt.calls.Commitments.set_commitment(netuid=netuid, info=info)
        assert (await client.submit_call(call, miner, signer="hotkey")).success

        graph = await client.subnets.metagraph(netuid)
        assert graph.hotkeys == [wallet.hotkey_ss58 for wallet in (owner, validator, miner)]
        assert graph.coldkeys == [wallet.coldkey_ss58 for wallet in (owner, validator, miner)]
        row = graph.neuron(2)
        assert row.axon == "10.1.2.3:8091" and row.commitment.data == "hello"
        assert graph.neuron(1).alpha_stake.rao > 0 and not row.validator_permit

        await client.wait_for_epoch(netuid)
        await succeed(client, bt.SetWeights(netuid=netuid, weights={2: 1.0}), validator)
        assert await client.weights.weights(netuid=netuid) == {1: {2: 1.0}}
        await client.wait_for_epoch(netuid)
        stake = (await client.subnets.metagraph(netuid)).neuron(2).alpha_stake
        await client.wait_for_epoch(netuid)
        graph = await client.subnets.metagraph(netuid)
        assert graph.neuron(2).incentive == 1.0 and graph.neuron(1).dividends == 1.0
        assert graph.neuron(1).validator_permit and graph.neuron(2).emission.rao == pytest.approx(8.2e9, rel=1e-3)
        assert (graph.neuron(2).alpha_stake - stake).rao == pytest.approx(8.2e9, rel=1e-3)
        assert (await client.weights.bonds(netuid=netuid))[1][2] > 0
        neurons = await client.neurons.all(netuid)
        assert [neuron.uid for neuron in neurons] == [0, 1, 2] and neurons[1].validator_permit
        status = await client.epochs.epoch_status(netuid=netuid)
        assert status["tempo"] == 20 and status["epoch_index"] >= 3
        assert status["next_epoch_start_block"] == status["last_epoch_block"] + 20
        assert (await client.subnets.burn(netuid=netuid)).rao > 1_000_000_000
        parameters = await client.subnets.subnet_hyperparameters(netuid=netuid)
        assert parameters["tempo"] == 20 and parameters["weights_rate_limit"] == 5
        assert parameters["commit_reveal_weights_enabled"] is False
        (position,) = await client.staking.stake_for_coldkey(coldkey_ss58=miner.coldkey_ss58)
        assert position.netuid == netuid and position.stake.rao >= graph.neuron(2).alpha_stake.rao

    run(localnet, talk)


def test_refusals_come_as_the_sdks_own_errors(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        owner, validator, stranger = (dev(name) for name in ("no-o", "no-v", "no-x"))
        netuid = await subnet(localnet, client, owner)
        await fund(localnet, client, validator, stranger)
        await register(client, netuid, validator)
        async with bt.Client(localnet.endpoint) as fresh:
            again = bt.BurnedRegister(netuid=netuid)
            assert await refusal(fresh, again, validator) == "HotKeyAlreadyRegisteredInSubNet"
        assert await refusal(client, bt.StartCall(netuid=netuid), owner) == "FirstEmissionBlockNumberAlreadySet"
        assert await refusal(client, bt.StartCall(netuid=netuid), stranger) == "BadOrigin"
        axon = bt.ServeAxon(netuid=netuid, ip="10.1.2.3", port=80)
        assert await refusal(client, axon, stranger) == "HotKeyNotRegisteredInNetwork"
        limit = await client.query(("SubtensorModule", "WeightsSetRateLimit"), [netuid])
        assert limit == 5
        await client.wait_for_epoch(netuid)
        denied = bt.calls.SubtensorModule.set_weights(netuid=netuid, dests=[0], weights=[1], version_key=0)
        result = await client.submit_call(denied, validator, signer="hotkey")
        assert result.error.name == "NeuronNoValidatorPermit"
        hot = validator.hotkey_ss58
        async with bt.Client(localnet.endpoint) as fresh:
            await succeed(fresh, bt.AddStake(netuid=netuid, amount_tao=20, hotkey_ss58=hot), validator)
        await client.wait_for_epoch(netuid)
        await succeed(client, bt.SetWeights(netuid=netuid, weights={0: 1.0}), validator)
        too_fast = await client.submit_call(denied, validator, signer="hotkey")
        assert too_fast.error.name == "SettingWeightsTooFast"
        strange = await client.submit_call(denied, stranger, signer="hotkey")
        assert strange.error.name == "HotKeyNotRegisteredInSubNet"

    run(localnet, talk)


def test_a_used_nonce_is_refused_by_name(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        call = await client._substrate.compose(bt.calls.System.remark(remark=b"x"))
        nonce = await client._substrate.account_next_index(dev("alice").coldkey_ss58)
        for stale in (nonce - 1, nonce + 1000):
            result = await client._substrate.submit(call, dev("alice").coldkey, nonce=stale)
            assert result.error.name == ("Stale" if stale < nonce else "Future")

    run(localnet, talk)


def test_sudo_speaks_for_root(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        owner = dev("root-o")
        netuid = await subnet(localnet, client, owner)
        inner = bt.calls.AdminUtils.sudo_set_kappa(netuid=netuid, kappa=1234)
        composed = await client._substrate.compose(inner)
        sudo = bt.calls.Sudo.sudo(call=composed)
        assert (await client.submit_call(sudo, dev("alice"))).success
        assert await client.query(("SubtensorModule", "Kappa"), [netuid]) == 1234
        refused = await client.submit_call(sudo, owner)
        assert refused.error.name == "RequireSudo"

    run(localnet, talk)


def test_heads_stream_and_old_blocks_answer(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        seen: list[int] = []
        async for header in client.blocks():
            seen.append(header.number)
            if len(seen) == 4:
                break
        assert seen == list(range(seen[0], seen[0] + 4))
        past = await client.at(seen[0])
        assert await past.query(("System", "Number")) == seen[0]
        info = await client.block_info(seen[1])
        assert info.number == seen[1] and info.timestamp.year >= 2024
        assert len(await client.query_map(("SubtensorModule", "NetworksAdded"))) >= 2

    run(localnet, talk)


def test_many_submissions_of_one_wallet_at_once(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        wallets = [dev(f"crowd-{number}") for number in range(12)]
        intents = [bt.Transfer(dest_ss58=wallet.coldkey_ss58, amount_tao=1) for wallet in wallets]
        results = await asyncio.gather(*(client.execute(intent, dev("alice")) for intent in intents))
        assert all(result.success for result in results)
        balances = [await client.balances.balance(intent.dest_ss58) for intent in intents]
        assert balances == [bt.Balance.from_tao(1)] * len(intents)

    run(localnet, talk)


def test_two_mechanisms_of_one_subnet(localnet: Localnet) -> None:
    async def talk(client: bt.Client) -> None:
        owner, validator, miner = (dev(name) for name in ("mech-o", "mech-v", "mech-m"))
        netuid = await subnet(localnet, client, owner)
        await fund(localnet, client, validator, miner)
        await register(client, netuid, validator, miner)
        admin, hot = bt.calls.AdminUtils, validator.hotkey_ss58
        async with bt.Client(localnet.endpoint) as fresh:
            await succeed(fresh, bt.AddStake(netuid=netuid, amount_tao=20, hotkey_ss58=hot), validator)
        fewer = admin.sudo_set_max_allowed_uids(netuid=netuid, max_allowed_uids=128)
        assert (await client.submit_call(fewer, owner)).success
        await succeed(client, bt.SetMechanismCount(netuid=netuid, mechanism_count=2), owner)
        shares = admin.sudo_set_mechanism_emission_split(netuid=netuid, maybe_split=[16384, 49151])
        assert (await client.submit_call(shares, owner)).success
        assert await client.subnets.mechanism_count(netuid=netuid) == 2
        assert await client.subnets.mechanism_emission_split(netuid=netuid) == [16384, 49151]

        await client.wait_for_epoch(netuid)
        await succeed(client, bt.SetWeights(netuid=netuid, weights={0: 1.0}), validator)
        await succeed(client, bt.SetWeights(netuid=netuid, weights={2: 1.0}, mechid=1), validator)
        third = bt.SetWeights(netuid=netuid, weights={2: 1.0}, mechid=2)
        assert await refusal(client, third, validator) == "MechanismDoesNotExist"
        assert await client.weights.weights(netuid=netuid) == {1: {0: 1.0}}
        assert await client.weights.weights(netuid=netuid, mechid=1) == {1: {2: 1.0}}
        await client.wait_for_epoch(netuid)
        await client.wait_for_epoch(netuid)
        assert set((await client.weights.bonds(netuid=netuid, mechid=1))[1]) == {2}
        api = bt.runtime_api.SubnetInfoRuntimeApi
        graphs = [await client.runtime(api.get_mechagraph, [netuid, mechid]) for mechid in (0, 1, 2)]
        assert [graph and graph["netuid"] for graph in graphs] == [netuid, netuid + 4096, None]
        assert [list(graph["incentives"]) for graph in graphs[:2]] == [[65535, 0, 0], [0, 0, 65535]]
        # The column is weighted once more by the mechanism's share, as on the Subtensor.
        emission = (await client.subnets.metagraph(netuid)).neuron(2).emission
        assert emission.rao == pytest.approx(0.75 * 0.75 * 0.41 * 20e9, rel=1e-3)
        hide = admin.sudo_set_commit_reveal_weights_enabled(netuid=netuid, enabled=True)
        assert (await client.submit_call(hide, owner)).success
        await succeed(client, bt.SetWeights(netuid=netuid, weights={2: 1.0}, mechid=1), validator)
        assert await client.weights.timelocked_weight_commits(netuid=netuid) == {}
        (listed,) = (await client.weights.timelocked_weight_commits(netuid=netuid, mechid=1)).values()
        assert listed[0]["hotkey"] == hot

    run(localnet, talk)
