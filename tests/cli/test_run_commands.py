"""Contracts kept in a file, runs listed, and created once however often a command was cut short."""

import asyncio
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.base import RunId
from node.launch import Plan, build_spec
from node.terms import params_of
from tests.cli.chain import POT, Chain
from tests.cli.command import PASSWORD, Answer, command


def listed(chain: Chain, home: Path, *more: str) -> Answer:
    return command("run", "list", *chain.at(), *more, home=home)


def test_runs_are_listed_with_state_owner_and_pot(chain: Chain, tmp_path: Path) -> None:
    rows = json.loads(listed(chain, tmp_path, "--newest", "1000", "--json").out)
    (newest,) = json.loads(listed(chain, tmp_path, "--newest", "1", "--json").out)
    people = listed(chain, tmp_path, "--newest", "1000")

    assert [row["run"] for row in rows] == list(range(1, len(rows) + 1))
    assert newest == rows[-1]
    row = rows[chain.run - 1]
    assert row | {"workers": 0} == {
        "run": chain.run, "name": "commands", "state": "running", "model": "LlamaForCausalLM",
        "owner": chain.address("owner"), "pot": str(POT), "workers": 0, "latest_version": 0,
    }  # fmt: skip
    line = people.out.splitlines()[chain.run]
    assert line.startswith(f"{chain.run} ") and "commands" in line and "1,000 tSTAKE" in line


def test_contracts_without_runs_say_so_and_nothing_is_begun_without_a_chain(chain: Chain, tmp_path: Path) -> None:
    deploy = ("deploy", "--wallet", chain.wallets["owner"], "--out", tmp_path / "new.json", "--rpc")

    nowhere = command(*deploy, "http://127.0.0.1:9", home=tmp_path)
    deployed = command(*deploy, chain.anvil.rpc_url, home=tmp_path)
    runs = command("run", "list", *chain.at()[:2], "--deployment", tmp_path / "new.json", home=tmp_path)

    assert nowhere.code == 75 and "deploying" not in nowhere.err
    assert deployed.code == 0 and deployed.err.startswith(f"deploying from {chain.address('owner')}; if this is cut")
    assert (runs.code, runs.out) == (0, "no runs on this deployment yet\n")


@pytest.mark.parametrize(
    ("choice", "said"),
    [(("--quorum", "5"), "a quorum of 5 cannot be: of 1 validators, choose 1 to all"),
     (("--set", "foo=1"), "task residues: config, foo: no such setting: there are classes, vocabulary, seed, ")],
)  # fmt: skip
def test_a_run_that_cannot_be_is_not_said_to_be_created(
    chain: Chain, tmp_path: Path, choice: tuple[str, ...], said: str
) -> None:
    answer = command(
        "run", "create", "--wallet", chain.wallets["owner"], "--model", "tiny", "--trainer", chain.address("trainer"),
        "--validator", chain.address("validator"), *choice, *chain.at(), home=tmp_path,
    )  # fmt: skip

    assert answer.code == 2
    assert answer.said.startswith(f"error: {said}")
    assert "creating" not in answer.err


async def test_a_run_that_was_cut_short_is_gone_on_with(chain: Chain, tmp_path: Path) -> None:
    owner = await chain.ledger("owner")
    spec = build_spec("tiny", chain.base, Plan("half", max_steps=2))
    await owner.create_run(params_of(spec, chain.address("trainer"), [chain.address("validator")], 1), spec.encode())
    half = await owner.run_count()
    create = (
        "run", "create", "--wallet", chain.wallets["owner"], "--model", "tiny", "--pace", "local", "--steps", "2",
        "--name", "half", "--trainer", chain.address("trainer"), "--validator", chain.address("validator"),
        "--relay", chain.address("relay"), "--pot", "3", *chain.at(), "--json",
    )  # fmt: skip

    first = await asyncio.to_thread(command, *create, home=tmp_path)
    state, count = await owner.run_state(RunId(half)), await owner.run_count()
    second = await asyncio.to_thread(command, *create, home=tmp_path)
    show = ("run", "show", "--run", str(half), *chain.at(), "--json")
    summary = json.loads((await asyncio.to_thread(command, *show, home=tmp_path)).out)
    await owner.close()

    assert first.code == second.code == 0, first.err + second.err
    assert (json.loads(first.out)["run"], count, state.pot) == (half, half, 3 * 10**18)
    assert summary["relays"] == [chain.address("relay")]
    assert json.loads(second.out)["run"] == half + 1  # a whole one is not taken for it
    assert "going on with a run that was created and not funded" in first.err
    assert "`intellect-node run list`" in second.err


def test_contracts_whose_file_no_disk_takes_are_named_all_the_same(chain: Chain, tmp_path: Path) -> None:
    """As a full disk would have it: 100 bytes can be written, and no more."""
    out = tmp_path / "out.json"
    words = ("deploy", "--wallet", chain.wallets["owner"], *chain.at()[:2], "--out", out)

    answer = subprocess.run(
        [sys.executable, "-m", "cli", *map(str, words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        env={**os.environ, "INTELLECT_NODE_PASSWORD": PASSWORD}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert answer.returncode == 2, answer.stderr
    said = answer.stderr.splitlines()[-1]
    assert said.startswith(f"error: the contracts stand, and deployment file {out} cannot be written (File too large)")
    kept = json.loads(said[said.index("{") :])
    assert kept["chain_id"] == 31337 and kept["coordinator"] in answer.stdout
    assert list(tmp_path.iterdir()) == []
