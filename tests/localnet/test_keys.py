"""Owning hotkeys, and what they take."""

from __future__ import annotations

from tests.localnet.conftest import Net


def test_a_hotkey_belongs_to_whoever_came_first(net: Net) -> None:
    net.fund("a", "b")
    hotkey = net.address("shared")
    net.do("a", "SubtensorModule", "try_associate_hotkey", hotkey=hotkey)
    net.do("b", "SubtensorModule", "try_associate_hotkey", hotkey=hotkey)
    assert net.get("Owner", hotkey) == net.address("a")
    assert net.get("OwnedHotkeys", net.address("a")) == [hotkey] and net.get("OwnedHotkeys", net.address("b")) == []


def test_take_moves_within_its_bounds(net: Net) -> None:
    net.register(net.subnet(), "a")
    hotkey = net.address("a_hot")

    def change(name: str, take: int, who: str = "a") -> str | None:
        return net.do(who, "SubtensorModule", name, hotkey=hotkey, take=take).error

    assert change("increase_take", 11_797) == "DelegateTakeTooHigh"
    assert change("decrease_take", 11_796) == "DelegateTakeTooHigh"
    assert change("decrease_take", 100) is None and net.get("Delegates", hotkey) == 100
    assert change("increase_take", 100) == "DelegateTakeTooLow"
    assert change("increase_take", 200, who="owner") == "NonAssociatedColdKey"
    assert change("increase_take", 200) is None
    net.sudo("AdminUtils", "sudo_set_tx_delegate_take_rate_limit", tx_rate_limit=100)
    assert change("increase_take", 300) == "DelegateTxRateLimitExceeded"


def test_identities_are_for_those_who_take_part(net: Net) -> None:
    fields = ("name", "url", "github_repo", "image", "discord", "description", "additional")
    identity = dict.fromkeys(fields, b"text")
    net.fund("a")
    assert net.do("a", "SubtensorModule", "set_identity", **identity).error == "HotKeyNotRegisteredInNetwork"
    net.register(net.subnet(), "a")
    assert net.do("a", "SubtensorModule", "set_identity", **identity).error is None
    assert net.get("IdentitiesV2", net.address("a"))["name"] == "text"
