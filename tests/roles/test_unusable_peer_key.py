"""A role whose libp2p key is none goes on without, and says so."""

from node.config import Libp2p
from node.p2p.network import Network as Peers
from node.p2p.standing import read_standing
from tests.roles.network import Build


async def test_status_says_why_libp2p_is_off_when_its_key_is_none(build: Build) -> None:
    network = await build(validators=1)
    network.settings = {"libp2p": Libp2p(on=True)}
    before = await network.validator()
    assert isinstance(before.member.others, Peers)
    await before.stop()
    network.parts.clear()
    state = before.member.state
    state.peers.write_text(state.peers.read_text().replace('"on": false', '"on": true'))  # as a kill leaves it
    state.peer_key.write_bytes(bytes(31))

    await network.validator()

    standing = read_standing(state.peers)
    assert standing is not None and standing["on"] is False
    assert f"{state.peer_key} is not the libp2p key that this program writes" in standing["why"]
