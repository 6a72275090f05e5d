"""What people read is in tokens, UTC and few digits; what scripts read is exact."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from cli.display import field_text, when
from ledger.base import TOKEN_SYMBOL, TOKEN_UNIT, amount_text
from ledger.contracts import Contracts
from ledger.deployment import Deployment
from ledger.endpoints import Endpoints
from node.rollouts.file import encode_file
from node.rollouts.rollout import FINISH_EOS, Rollout
from tests.cli.chain import POT, Chain
from tests.cli.command import Answer, command


@pytest.mark.parametrize(
    ("base_units", "text"),
    [(0, "0"), (1, "0.000000000000000001"), (12_500_000_000_000_000_000, "12.5"), (10**18 - 1, "0." + "9" * 18),
     (10**33 + 1, "1,000,000,000,000,000.000000000000000001"), (2_063_534 * 10**12, "2.063534"), (10**21, "1,000")],
)  # fmt: skip
def test_an_amount_has_its_every_digit(base_units: int, text: str) -> None:
    assert amount_text(base_units) == f"{text} tSTAKE"


def test_times_are_utc_with_how_far_off_they_are() -> None:
    assert when(1_000_000_000, 1_000_000_180) == "2001-09-09T01:46:40Z (3 min ago)"
    assert when(1_000_000_000, 999_999_990) == "2001-09-09T01:46:40Z (in 10 s)"


def test_records_in_a_record_are_people_s_too() -> None:
    assert field_text("claimed", {"check": "TOPLOC", "measured": 0.123456}) == "check TOPLOC, measured 0.1235"


async def test_the_symbol_and_decimals_are_the_contracts(chain: Chain) -> None:
    endpoints = Endpoints([chain.anvil.rpc_url], None)
    token = Contracts(endpoints, Deployment.load(chain.contracts)).token
    found = await token.view("symbol"), 10 ** int(await token.view("decimals"))
    await endpoints.close()

    assert found == (TOKEN_SYMBOL, TOKEN_UNIT)


def test_amounts_are_tokens_for_people_and_base_units_for_scripts(chain: Chain, tmp_path: Path) -> None:
    run = ("run", "show", "--run", str(chain.run))
    wallet = ("--wallet", str(chain.wallets["relay"]))
    economics = chain.spec.economics
    stake = int(economics.penalty) + int(economics.submission_bond)

    shown, read = both(chain, tmp_path, *run)
    assert shown["pot"] == "1,000 tSTAKE" and read["pot"] == str(POT)
    assert shown["stake_per_node"] == f"{Decimal(stake) / TOKEN_UNIT:f}".rstrip("0") + " tSTAKE"
    assert read["stake_per_node"] == str(stake)
    shown, read = both(chain, tmp_path, "rewards", "show", *wallet)
    assert (shown["rewards"], read["rewards"]) == ("0 tSTAKE", "0")
    shown, read = both(chain, tmp_path, "stake", "show", *wallet)
    assert (shown["free"], read["free"]) == ("0 tSTAKE", "0")
    assert shown["allocations"].startswith("unknown: the node key") and read["allocations"] is None


def both(chain: Chain, home: Path, *words: str) -> tuple[dict[str, str], dict[str, object]]:
    """What a command tells people, by the name of the field, and scripts."""
    people, scripts = (command(*words, *chain.at(), *more, home=home) for more in ((), ("--json",)))
    assert (people.code, scripts.code) == (0, 0), people.err + scripts.err
    return dict(re.split(r"  +", line, maxsplit=1) for line in people.out.splitlines()), json.loads(scripts.out)


def test_versions_have_utc_times_and_their_age(chain: Chain, tmp_path: Path) -> None:
    people, scripts = (
        command("checkpoints", "list", "--run", str(chain.run), *chain.at(), *more, home=tmp_path)
        for more in ((), ("--json",))
    )

    (row,) = json.loads(scripts.out)
    stamp = datetime.fromtimestamp(row["time"], UTC).isoformat().replace("+00:00", "Z")
    assert isinstance(row["time"], int) and row["root"] == chain.root.hex()
    assert re.fullmatch(rf"0 .* {stamp} \((in )?\d+ (s|min|h|d)( ago)?\)", people.out.splitlines()[1])


@pytest.fixture
def rollout_file(chain: Chain, tmp_path: Path) -> Path:
    """A file of the run in which every reward is a third."""
    size = chain.spec.slot.group_size
    rows = [
        Rollout(*divmod(row, size), (1, 2), (3,), (-0.5,), (bytes(258),), FINISH_EOS, 1 / 3)
        for row in range(chain.spec.slot.rows)
    ]
    path = tmp_path / f"{'ab' * 32}.rollouts"
    path.write_bytes(encode_file(rows))
    return path


def test_rewards_have_four_digits_for_people_and_all_for_scripts(
    chain: Chain, rollout_file: Path, tmp_path: Path
) -> None:
    def shown(*more: str) -> Answer:
        return command("rollouts", "show", rollout_file, "--run", str(chain.run), *chain.at(), *more, home=tmp_path)

    line = shown().out.splitlines()[1]
    assert line.split() == ["0", "0", "2", "1", "0.3333", "eos"]
    assert json.loads(shown("--json").out)[0]["reward"] == 0.3333333432674408  # the float32 next to a third


def test_a_parquet_file_that_exists_is_kept(chain: Chain, rollout_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_text("mine")
    words = ("rollouts", "export", rollout_file, out, "--run", str(chain.run), *chain.at())

    refused = command(*words, home=tmp_path)
    forced = command(*words, "--force", home=tmp_path)

    assert refused.code == 2
    assert refused.said == f"error: {out} exists: name another file, or replace it with --force"
    assert "has no commitment" in forced.said and out.read_text() == "mine"  # nobody committed that file
