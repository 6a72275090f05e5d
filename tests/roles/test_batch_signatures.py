"""What a validator takes for another's signature over a list: that one's own, of this run, in its one form."""

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from ledger.base import Address, Digest, RunId, ascending
from ledger.messages import HALF_ORDER, Batch, Domain, Have, sign
from node.peers.wire import to_hex
from node.roles.turns import TURN_SECONDS
from node.transport import make_app, serve
from tests.roles.network import Build, Network
from tests.roles.stage import key, until

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # of secp256k1; SEC 2, section 2.4.1
Forge = Callable[[Network, Domain, Digest], bytes | None]


def by(number: int | None, *, run: int = 0, chain: int | None = None, contract: str | None = None) -> Forge:
    """Signed by validator `number`, or by a stranger."""

    def forge(network: Network, domain: Domain, commitment: Digest) -> bytes:
        who = key(77) if number is None else network.validators[number]
        where = Domain(chain or domain.chain_id, Address(contract) if contract else domain.contract)
        return sign(who, where, Batch(RunId(network.run + run), (commitment,)))

    return forge


def upper_half(network: Network, domain: Domain, commitment: Digest) -> bytes:
    signature = by(2)(network, domain, commitment)
    assert signature is not None
    r, s, v = signature[:32], int.from_bytes(signature[32:64]), signature[64]
    assert s <= HALF_ORDER
    return r + (ORDER - s).to_bytes(32) + bytes([55 - v])


FORGERIES: dict[str, Forge] = {
    "a stranger's": by(None),
    "that of the one who asks": by(0),
    "that of a validator who signed already": by(1),
    "another run's": by(2, run=1),
    "another chain's": by(2, chain=1),
    "another contract's": by(2, contract="0x" + "22" * 20),
    "high s": upper_half,
    "64 bytes": lambda *about: by(2)(*about)[:64],  # type: ignore[index]
    "66 bytes": lambda *about: by(2)(*about) + b"\0",  # type: ignore[operator]
    "v of 0": lambda *about: by(2)(*about)[:64] + b"\0",  # type: ignore[index]
    "zeros": lambda *_: bytes(65),
    "over another message": lambda network, domain, commitment: sign(
        network.validators[2], domain, Have(commitment, 5)
    ),
    "over another list": lambda network, domain, _: sign(
        network.validators[2], domain, Batch(network.run, (Digest(b"\x05" * 32),))
    ),
    "none": lambda *_: None,
}


async def yes(_: object) -> bool:
    return True


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_signature_is_no_vote_and_a_true_one_makes_the_quorum(build: Build, forgery: str) -> None:
    network = await build(validators=4)  # quorum 3; the fourth is away
    asking, signing = await network.validator(0), await network.validator(1)
    object.__setattr__(signing.mailbox, "acceptable", yes)
    commitment = await network.commit_honestly(await network.worker())
    domain, answer = asking.member.domain, FORGERIES[forgery]

    async def answered(_: web.Request) -> web.StreamResponse:
        signature = answer(network, domain, commitment)
        return web.json_response({"signature": None if signature is None else to_hex(signature), "refused": []})

    app = make_app(1 << 20)
    app.router.add_post("/v1/batches", answered)
    runner, port = await serve(app, "127.0.0.1", 0)
    network.cleanups.append(runner.cleanup)
    await network.connect(network.validators[2]).set_endpoint(f"http://127.0.0.1:{port}")
    await network.pass_time(network.spec.windows.available + 4 * TURN_SECONDS)
    await asking.member.sync()
    await signing.member.sync()
    batcher: Any = asking.role.closer.batcher

    await batcher.propose(yes)
    assert batcher.batches == {}

    answer = by(2)
    await batcher.propose(yes)
    batch = batcher.batches[commitment]
    three = {Address(each.address): each for each in network.validators[:3]}
    message = Batch(network.run, (commitment,))
    assert list(batch.signatures) == [sign(three[who], domain, message) for who in ascending(three)]
    await network.pass_time(12)
    await asking.member.ledger.settle(batch.run, batch.commitments, batch.signatures)  # the contract agrees
    await until(lambda: network.state(commitment).final)
