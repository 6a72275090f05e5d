"""Evidence looked at again: what needs no weights comes before weights are fetched."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.checks.evidence import Evidence
from node.config import Home
from node.engines.choice import EngineChoice
from node.errors import Malformed
from node.replay import verify_evidence
from node.roles.frauds import ForgedReward
from tests.roles.network import Build, Network
from tests.roles.stage import key, until


async def fault_found(build: Build) -> tuple[Network, Evidence]:
    """A forged reward's evidence, and the network with its validator, which has the weights."""
    network = await build(validators=1)
    (validator,) = await network.all_validators()
    await network.commit_honestly(await network.worker(work=ForgedReward()))
    await until(lambda: bool(validator.role.witness.exhibits.list()))
    (path,) = validator.role.witness.exhibits.list()
    return network, Evidence.parse(path.read_bytes())


async def verified(network: Network, evidence: Evidence, folder: Path) -> dict[str, Any]:
    """What `verify` says."""
    path, engine = folder / "evidence.json", EngineChoice("scripted")
    path.write_bytes(evidence.encode())
    return await verify_evidence(network.connect(key(9)), path, Home(folder / "home"), True, engine, lambda _: None)


def fetched(folder: Path) -> bool:
    return bool(list((folder / "home").rglob("*.safetensors")))


async def test_evidence_that_is_not_in_the_committed_tree_is_refused_without_fetching_weights(
    build: Build, tmp_path: Path
) -> None:
    network, evidence = await fault_found(build)
    (exhibit,) = evidence.exhibits
    changed = replace(exhibit, preimage=exhibit.preimage[:-1] + bytes([exhibit.preimage[-1] ^ 1]))

    with pytest.raises(Malformed, match="is not in the committed tree"):
        await verified(network, replace(evidence, exhibits=(changed,)), tmp_path)
    assert not fetched(tmp_path)
    assert (await verified(network, evidence, tmp_path))["confirmed"] is True
    assert fetched(tmp_path)


async def test_evidence_that_shows_no_rollout_is_undecided_without_fetching_weights(
    build: Build, tmp_path: Path
) -> None:
    network, evidence = await fault_found(build)
    of_the_file = replace(evidence.rejected, leaf=2**32 - 1)

    found = await verified(network, replace(evidence, exhibits=(), rejected=of_the_file), tmp_path)

    assert found["confirmed"] is False and not fetched(tmp_path)
    assert found["found"] == {"undecided": "the evidence shows no rollout: this check needs the chain"}
