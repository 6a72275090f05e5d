"""Roles among their peers by libp2p, with processes, sockets and a chain in memory; and without it."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

from ledger.base import Address, Digest, Version
from node.bans import Bans
from node.config import Home, Libp2p, Settings
from node.membership import member_of
from node.p2p.addresses import split_endpoint
from node.p2p.network import Network as Peers
from node.p2p.standing import read_standing
from node.roles.directory import url_of
from node.roles.presence import present
from node.roles.relay import Relay
from node.standing import Asked, standing
from tests.roles.network import TRAINER, Build, Part
from tests.roles.stage import key, until

ON = {"libp2p": Libp2p(on=True)}
HIDDEN = {**ON, "inbound": False}


def among(part: Part) -> Peers:
    assert isinstance(part.member.others, Peers)
    return part.member.others


async def met(*parts: Part) -> None:
    """Waits until each of `parts` is connected with, and known to, all of the others."""
    peers = [among(part) for part in parts]
    await until(
        lambda: all({o.peer for o in peers if o is not one} <= one.owners.keys() for one in peers), "everybody has met"
    )


async def test_roles_meet_by_what_the_chain_says_and_a_file_comes_from_a_worker_that_nobody_can_dial(
    build: Build,
) -> None:
    network = await build(validators=2)
    network.settings = ON
    validator = await network.validator()
    network.settings = HIDDEN
    worker = await network.worker()
    network.chain.mine(3)  # which announcing an endpoint did otherwise: the beacon of the first slot is known now
    commitment = await network.commit_honestly(worker)
    await asyncio.gather(validator.member.sync(), worker.member.sync())
    assert url_of(validator.member.record, worker.member.account) is None

    await met(validator, worker)
    assert await validator.role.intake.fetch(commitment)

    assert validator.role.intake.holds(commitment)
    await until(lambda: bool(among(validator).holders(commitment)), "the worker says what it has")
    row = among(validator).standing()
    assert row["on"] and row["peers"] == [{"peer_id": among(worker).peer, "node": worker.member.account}]


async def test_a_new_version_announced_has_a_role_look_at_the_chain_at_once(build: Build) -> None:
    network = await build(validators=1)
    network.settings = {**ON, "poll_seconds": 3600.0}
    one = await network.part(TRAINER, lambda member: (Relay(member), None))  # which the chain takes for the trainer
    other = await network.validator()
    await met(one, other)
    waiting = asyncio.create_task(other.member.wait())
    await network.connect(TRAINER).publish_checkpoint(network.run, Version(1), Digest(bytes(32)))

    await one.member.sync()

    await asyncio.wait_for(waiting, 30)
    await other.member.sync()
    assert other.member.record.latest == 1


async def test_validators_hear_what_each_other_signed_when_nobody_can_connect_to_them(build: Build) -> None:
    network = await build(validators=2)
    network.settings = ON
    worker = await network.worker()
    network.settings = HIDDEN
    one, other = (await network.validator(0)).go(), (await network.validator(1)).go()
    await asyncio.gather(met(one, worker), met(other, worker))
    network.chain.mine(3)
    commitment = await network.commit_honestly(worker)

    both = {one.member.account, other.member.account}
    for part in (one, other):
        case = await part.role.casebook.case(commitment)
        await until(lambda case=case: case.haves.keys() == both, "each hears the other by the worker")


async def test_status_says_who_is_connected_and_who_reached_this_node(build: Build) -> None:
    network = await build(validators=2)
    network.settings = ON
    parts = [await network.validator(place) for place in (0, 1)]
    await met(*parts)
    me, other = parts

    await until(lambda: among(me).reach.answer is not None, "somebody has tried")
    await until(lambda: bool((read_standing(me.member.state.peers) or {}).get("reachable")), "it is written down")
    asked = Asked(me.member.account, None, Home(network.folder / me.account.address))
    (row,) = (await standing(network.connect(key(9)), network.run, asked))["peers"]

    assert row["reachable"] is True and row["reachable_by"] == [other.member.account]
    assert row["peers"] == [{"peer_id": among(other).peer, "node": other.member.account}]
    assert row["account"] == me.member.account and row["peer_id"] == among(me).peer
    await me.member.sync()
    root = me.member.record.root(Version(0))
    assert root is not None
    await until(lambda: among(me).having(root) == (other.member.account,), "who has the weights is told")
    url = url_of(me.member.record, other.member.account)
    del me.member.record.endpoints[other.member.account]
    assert me.member.weight_urls() == (url,)  # by its heartbeat, where the chain has none
    assert split_endpoint(me.member.record.endpoints[me.member.account])[1] == among(me).link.address


async def test_a_node_that_lied_is_not_asked_at_the_url_that_it_announces_next(build: Build) -> None:
    network = await build(validators=2)
    network.settings = ON
    me, liar = [await network.validator(place) for place in (0, 1)]
    await met(me, liar)
    await me.member.sync()
    sources, endpoints = me.member.weight_urls, me.member.record.endpoints
    (url,) = sources()

    me.member.downloader.selection.ban(url, "served a wrong chunk")
    assert sources() == ()
    endpoints[liar.member.account] = "http://198.51.100.1/on/chain"
    assert sources() == ()
    among(liar).myself = replace(among(liar).myself, endpoint="http://198.51.100.1/by/heartbeat")
    among(liar).beat()
    await until(lambda: "http://198.51.100.1/by/heartbeat" in among(me).endpoints().values(), "it is heard")
    assert sources() == ()

    endpoints[Address(TRAINER.address)] = "http://198.51.100.1/of/another"
    assert sources() == ("http://198.51.100.1/of/another",)


async def test_a_node_that_lied_by_streams_is_asked_for_no_weights_and_the_reverse(build: Build) -> None:
    network = await build(validators=3)
    network.settings = ON
    me, one, other = [await network.validator(place) for place in (0, 1, 2)]
    await met(me, one, other)
    await me.member.sync()
    urls = [url_of(me.member.record, part.member.account) for part in (one, other)]
    assert sorted(me.member.weight_urls()) == sorted(map(str, urls))

    me.member.downloader.selection.ban(str(urls[0]), "served a wrong chunk")
    assert one.member.account in among(me).bans

    among(me).bans.add(other.member.account, "sent other content")
    assert me.member.weight_urls() == ()
    assert dict(Bans(me.member.state.checkpoints / "banned").reasons) == {
        urls[0]: "served a wrong chunk",
        one.member.account: f"{urls[0]}: served a wrong chunk",
        other.member.account: "sent other content",
    }


async def test_a_role_works_on_by_the_chain_and_http_while_its_libp2p_is_killed_again_and_again(build: Build) -> None:
    network = await build(validators=1)
    network.settings = ON
    validator = (await network.validator()).go()
    worker = (await network.worker()).go()
    await met(validator, worker)

    async def kill() -> None:
        while True:
            for part in (validator, worker):
                if (pid := among(part).link.pid) is not None:  # type: ignore[attr-defined]
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.2)

    killing = asyncio.create_task(kill())
    try:
        (submission, *_) = await network.committed()
        assert (await network.live(submission.made.commitment)).name == "SETTLED"
    finally:
        killing.cancel()
    assert among(validator).standing()["peers"] == []


async def test_without_the_package_a_member_has_no_peers_and_says_why(build: Build) -> None:
    network = await build(validators=1)
    (account,) = network.validators
    settings = Settings(Home(network.folder / account.address), network.run, host="127.0.0.1", **ON)
    async with member_of(network.connect(account), settings) as member:
        await member.sync()

        async with present(member, None, account, "", package="no_such_package_is_installed"):
            written = member.state.peers
            await until(lambda: "not installed" in str((read_standing(written) or {}).get("why")), "it is said")

            assert member.others.endpoints() == {}


def test_a_node_that_nobody_can_connect_to_announces_nothing(tmp_path: Path) -> None:
    settings = Settings(Home(tmp_path), 1, inbound=False)

    assert settings.announced(8700) == ""


async def test_an_endpoint_is_taken_back_where_nobody_can_connect_any_more(build: Build) -> None:
    network = await build(validators=1)
    before = await network.validator()

    await before.stop()
    network.settings = {"inbound": False}

    after = await network.validator()
    await after.member.sync()

    assert after.member.record.endpoints[after.member.account] == ""
    assert url_of(after.member.record, Address(after.account.address)) is None
