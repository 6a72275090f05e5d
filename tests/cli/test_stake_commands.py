"""Stake and pots taken back by the command line, on a real chain."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ledger.base import TOKEN_UNIT, RunId
from ledger.keys import create, node_key_path, unlock
from node.launch import create_run
from node.roles.registration import Registration
from tests.cli.chain import UNBONDING_SECONDS, Chain
from tests.cli.command import PASSWORD, Answer, command


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def owned(chain: Chain) -> RunId:
    """A run of the owner's with 10 tokens in its pot."""
    ledger = await chain.ledger("owner")
    validators = [chain.address("validator")]
    run = await create_run(ledger, chain.spec, chain.address("trainer"), validators, 1, [], 10 * TOKEN_UNIT)
    await ledger.close()
    return run


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def staked(chain: Chain) -> int:
    """Base units that back the worker's node in the run: (penalty + bond) of the one submission that may be open."""
    create(node_key_path(chain.wallets["worker"]), PASSWORD, iterations=1)
    node = unlock(node_key_path(chain.wallets["worker"]), PASSWORD)
    ledger = await chain.ledger("worker")
    await Registration(ledger, node, await ledger.run(chain.run)).ensure()
    await ledger.close()
    return int(chain.spec.economics.penalty) + int(chain.spec.economics.submission_bond)


def asked(chain: Chain, role: str, home: Path, *words: str) -> Answer:
    return command(*words, "--wallet", chain.wallets[role], *chain.at(), "--json", home=home)


def told(answer: Answer) -> dict[str, Any]:
    assert answer.code == 0, answer.err
    found: dict[str, Any] = json.loads(answer.out)
    return found


def test_stake_is_added_unbonds_and_comes_back(chain: Chain, tmp_path: Path) -> None:
    def do(*words: str) -> dict[str, Any]:
        return told(asked(chain, "validator", tmp_path, *words))

    do("faucet", "--amount", "5")
    added = do("stake", "add", "3")
    none = asked(chain, "validator", tmp_path, "stake", "withdraw")
    unbonding = do("stake", "unbond", "--amount", "1.000000000000000000")
    soon = asked(chain, "validator", tmp_path, "stake", "withdraw")
    early = told(soon)
    between = do("stake", "show")
    asyncio.run(chain.anvil.advance(UNBONDING_SECONDS))
    late = do("stake", "withdraw")
    rest = do("stake", "unbond")
    after = do("stake", "show")

    assert added == {"staked": str(3 * TOKEN_UNIT), "free": str(3 * TOKEN_UNIT)}
    assert unbonding["unbonding"] == str(TOKEN_UNIT)
    assert told(none) == {"withdrawn": "0", "still_unbonding": "0"}
    assert none.said == "nothing unbonds: `intellect-node stake unbond` begins to take stake back"
    assert early.pop("all_ready_by") >= unbonding["ready_at"]
    assert early == {"withdrawn": "0", "still_unbonding": str(TOKEN_UNIT)}
    assert soon.said == "the rest is not ready: each part is 600 s after its `stake unbond`, which said when"
    assert between == {
        "provider": chain.address("validator"), "tokens": str(2 * TOKEN_UNIT), "free": str(2 * TOKEN_UNIT),
        "unbonding": str(TOKEN_UNIT), "ready_to_withdraw": "0", "unbonding_seconds": UNBONDING_SECONDS,
        "allocations": None,
    }  # fmt: skip
    assert late == {"withdrawn": str(TOKEN_UNIT), "still_unbonding": "0"}
    assert rest["unbonding"] == str(2 * TOKEN_UNIT)
    assert (after["tokens"], after["free"], after["unbonding"]) == (str(3 * TOKEN_UNIT), "0", str(2 * TOKEN_UNIT))


def test_stake_that_backs_a_node_is_shown_and_taken_back_by_the_run(chain: Chain, staked: int, tmp_path: Path) -> None:
    run = ("--run", str(chain.run))
    before = told(asked(chain, "worker", tmp_path, "stake", "show", *run))
    everywhere = told(asked(chain, "worker", tmp_path, "stake", "show"))
    people = command("stake", "show", "--wallet", chain.wallets["worker"], *chain.at(), home=tmp_path)
    exact = f"{Decimal(staked) / TOKEN_UNIT:f}".rstrip("0")
    told(asked(chain, "worker", tmp_path, "stake", "unbond", *run))
    nowhere = told(asked(chain, "worker", tmp_path, "stake", "show"))
    after = told(asked(chain, "worker", tmp_path, "stake", "show", *run))

    assert (before["run"], before["allocated"], before["locked"]) == (chain.run, str(staked), "0")
    assert everywhere["allocations"] == [{key: before[key] for key in ("run", "node", "allocated", "locked")}]
    assert (people.code, people.out.split()[-5:]) == (0, [before["node"], exact, "tSTAKE", "0", "tSTAKE"])
    assert nowhere["allocations"] == []
    assert (after["allocated"], after["unbonding"]) == ("0", str(staked))


@pytest.mark.parametrize(
    ("what", "said"),
    [(("add", "1000"), " tSTAKE, not 1,000 tSTAKE: "),
     (("unbond",), "0 tSTAKE cannot be unbonded: 0 tSTAKE are"),
     (("unbond", "--amount", "7.5"), "7.5 tSTAKE cannot be unbonded: 0 tSTAKE are"),
     (("unbond", "--run", "1"), "relay.node.json does not exist")],
)  # fmt: skip
def test_stake_that_is_not_there_is_said(chain: Chain, tmp_path: Path, what: tuple[str, ...], said: str) -> None:
    answer = asked(chain, "relay", tmp_path, "stake", *what)

    assert answer.code == 2
    assert said in answer.said


def test_a_claim_of_nothing_says_that_nothing_is_settled(chain: Chain, tmp_path: Path) -> None:
    answer = asked(chain, "relay", tmp_path, "rewards", "claim")

    assert told(answer) == {"provider": chain.address("relay"), "claimed": "0"}
    assert answer.said.startswith("nothing to claim: no pay is settled for this wallet yet")


def test_a_run_is_ended_and_its_pot_taken_back_by_its_owner_alone(chain: Chain, owned: RunId, tmp_path: Path) -> None:
    run = ("--run", str(owned))
    stranger = asked(chain, "worker", tmp_path, "run", "end", *run)
    relays = asked(chain, "worker", tmp_path, "run", "approve", chain.address("relay"), *run)
    early = asked(chain, "owner", tmp_path, "run", "withdraw", *run)
    ended = told(asked(chain, "owner", tmp_path, "run", "end", *run))
    twice = asked(chain, "owner", tmp_path, "run", "end", *run)
    asyncio.run(chain.anvil.advance(chain.spec.windows.grace + 1))
    another = asked(chain, "worker", tmp_path, "run", "withdraw", *run)
    taken = told(asked(chain, "owner", tmp_path, "run", "withdraw", *run))
    shown = told(command("run", "show", *run, *chain.at(), "--json", home=tmp_path))

    assert stranger.code == 2 and "only its owner or its trainer ends it: use the wallet of one" in stranger.said
    assert relays.code == 2 and "only its owner approves relays: use the owner's wallet" in relays.said
    assert early.code == 2 and "it has not ended (`run end`)" in early.said
    assert ended["run"] == owned
    assert twice.code == 2 and "it has ended already" in twice.said
    assert another.code == 2 and "only its owner takes the pot back" in another.said
    assert taken == {"run": owned, "withdrawn": str(10 * TOKEN_UNIT)}
    assert (shown["ended"], shown["pot"]) == (True, "0")


def test_a_run_that_there_is_not_is_not_ended(chain: Chain, tmp_path: Path) -> None:
    for what in (("end",), ("withdraw",), ("approve", chain.address("relay"))):
        answer = asked(chain, "owner", tmp_path, "run", *what, "--run", "999")
        assert answer.code == 2
        assert answer.said == "error: UnknownRun: there is no run 999 on this chain: correct the number"
