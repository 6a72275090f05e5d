"""Files of a node behind a slow line, by real libp2p processes: all of the line is of use, and everybody gets on."""

import random
from pathlib import Path

import pytest

from node.p2p.content import Content, Kind
from tests.p2p.lines import SlowLine, behind
from tests.p2p.parts import FILE, GivenPieces, town

RATE = 250e3
SECONDS = 30.0
DATA = random.Random(1).randbytes(1_500_000)


@pytest.mark.slow
@pytest.mark.parametrize(("relays", "askers"), [(1, 3), (2, 4), (0, 3)])
async def test_all_who_ask_for_a_file_over_a_slow_line_have_it_in_about_the_time_it_takes(
    tmp_path: Path, relays: int, askers: int
) -> None:
    """Through a relay nothing came: of pieces of a MiB, four at once, each was given up before it was whole."""
    content = Content(Kind.FILE, FILE, len(DATA), lambda _: None)
    held, line = GivenPieces({FILE: DATA}), SlowLine(RATE, delay=0.02)
    async with town() as place, behind(place, tmp_path, line, held, askers, relays=relays) as scene:
        await scene.fetch(content, SECONDS)

        came = [sum(each.came) for each in scene.counts]
        assert sum(came) > 0.8 * RATE * SECONDS
        assert min(came) > 0.7 * max(came)
        assert min(scene.files) >= 1
