"""The question for a patch, as strangers may ask it."""

import aiohttp
import pytest

from tests.shards.patchers import Start


@pytest.mark.parametrize(
    "query",
    [
        "", "?from=", "?from=xyz", "?from={base}&wait=31", "?from={base}&wait=-1", "?from={base}&more=1",
        "?from={base}&from={base}", "?wait=1", "?from={base}&wait=1&wait=1",
    ],
)  # fmt: skip
async def test_odd_questions_for_a_patch_are_refused(start: Start, query: str) -> None:
    node = await start("node")
    url = f"{node.url}/v1/patches/{'0' * 64}" + query.format(base="1" * 64)

    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 400


@pytest.mark.parametrize("target", ["0", "A" * 64, "0" * 65])
async def test_odd_names_of_versions_are_refused(start: Start, target: str) -> None:
    node = await start("node")

    async with aiohttp.ClientSession() as session:
        async with session.get(f"{node.url}/v1/patches/{target}?from={'1' * 64}") as response:
            assert response.status == 400
        async with session.get(f"{node.url}/v1/patches/{'0' * 64}?from={'1' * 64}&wait=30") as response:
            assert response.status == 404  # at once: nobody makes it here
