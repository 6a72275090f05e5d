"""Options, files and folders that cannot be used: exit code 2, by name, before anything is done."""

import asyncio
import json
import shutil
import socket
from pathlib import Path

import pytest
import typer
from aiohttp import web

from cli.sharing import LEAST_UPLOAD, byte_rate, byte_size
from node.engines.vllm import installed as vllm
from node.transport.limits import LEAST_BYTES_PER_SECOND
from node.transport.uplink import LEAST_FILES
from tests.cli.chain import Chain
from tests.cli.command import command, finished, process

BIG = "9" * 90  # over 256 bits
STRANGER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # EIP-55's first example

# --- The deployment's file

CHANGES = {
    "unknown": ({"extra": 1}, "extra: Extra inputs are not permitted"),
    "type": ({"block": "x"}, "block: Input should be a valid integer"),
    "chain": ({"chain_id": 84532}, "serves chain 31337, not 84532, which the deployment is on: correct --rpc"),
    "no-code": ({"token": STRANGER}, f"no contract stands at {STRANGER}, where the deployment has StakeToken. Use"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_deployment_that_is_not_the_chains_is_said(chain: Chain, tmp_path: Path, name: str) -> None:
    change, what = CHANGES[name]
    file = tmp_path / "contracts.json"
    file.write_text(json.dumps(json.loads(chain.contracts.read_text()) | change))

    answer = command(
        "run", "show", "--run", "1", "--rpc", chain.anvil.rpc_url, "--deployment", file, home=tmp_path / "home"
    )

    assert (answer.code, answer.out) == (2, "")
    assert what in answer.said


def test_contracts_in_each_others_place_are_said(chain: Chain, tmp_path: Path) -> None:
    whole = json.loads(chain.contracts.read_text())
    file = tmp_path / "contracts.json"
    file.write_text(json.dumps(whole | {"token": whole["staking"], "staking": whole["token"]}))

    answer = command("run", "show", "--run", "1", *chain.at()[:2], "--deployment", file, home=tmp_path)

    assert answer.code == 2
    assert "is not the StakeToken of this version. Use the run's own deployment file" in answer.said


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "JSON"), (b"[]", "Input should be an object"), (b"\xff", "JSON"), (b"[" * 60_000, "recursion limit"),
     (b" " * 70_000, "over 65536 bytes"), (None, "No such file"), ("folder", "Is a directory")],
)  # fmt: skip
def test_a_deployment_file_that_is_none_is_said(tmp_path: Path, content: bytes | str | None, what: str) -> None:
    file = tmp_path / "contracts.json"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        file.mkdir()

    answer = command("run", "show", "--run", "1", "--rpc", "http://h", "--deployment", file, home=tmp_path)

    assert answer.code == 2
    assert answer.said.startswith(f"error: deployment file {file}: ") and what in answer.said


def test_who_lacks_a_deployment_file_is_told_where_it_comes_from(tmp_path: Path) -> None:
    words = ("run", "list", "--rpc", "http://h", "--deployment")

    answer = command(*words, tmp_path / "none.json", home=tmp_path)
    (tmp_path / "file").write_text("")
    beneath = command(*words, tmp_path / "file" / "none.json", home=tmp_path)

    assert (answer.code, beneath.code) == (2, 2)
    assert answer.said == (
        f"error: deployment file {tmp_path}/none.json: No such file or directory: the run's owner hands the file out, "
        "and `intellect-node deploy --out` writes it"
    )
    assert beneath.said.endswith("none.json: a file stands where a folder has to be")


def test_contracts_are_not_deployed_where_their_addresses_could_not_be_kept(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "out.json", tmp_path, tmp_path / "file", tmp_path / ("x" * 300)):
        answer = command(
            "deploy", "--wallet", chain.wallets["owner"], *chain.at()[:2], "--out", out, home=tmp_path / "home"
        )
        assert answer.code == 2
        assert "cannot be written" in answer.said or "name another file with --out" in answer.said


# --- The chain's URL, the run's number


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://host", "", "http://", "http://[", "secret-of-the-account", "http://h:99999/secret-of-the-account"]
)  # fmt: skip
def test_an_endpoint_that_is_no_url_is_said_and_not_repeated(tmp_path: Path, chain: Chain, url: str) -> None:
    for words in (("run", "show", "--run", "1"), ("deploy", "--wallet", chain.wallets["owner"], "--out", "x.json")):
        answer = command(*words, "--rpc", url, *chain.at()[2:] * (words[0] == "run"), home=tmp_path)
        assert answer.code == 2
        assert answer.said.startswith("error: an RPC endpoint is an http(s) URL, such as https://sepolia.base.org")


def test_nobody_at_an_endpoint_means_try_again_and_tells_no_secret(chain: Chain, tmp_path: Path) -> None:
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        answer = command(
            "run", "show", "--run", "1", *chain.at(f"http://user:11{'11' * 31}@127.0.0.1:{port}/secret-of-the-account"),
            home=tmp_path,
        )  # fmt: skip

    assert answer.code == 75
    assert answer.said == (
        f"error: 127.0.0.1:{port}: nobody answers there (Connection refused): start the chain (locally, anvil), or "
        "correct --rpc"
    )


@pytest.mark.parametrize(
    ("host", "said"),
    [("http://name.invalid", "name.invalid: its name is not known ("),
     ("https://127.0.0.1:{port}", "127.0.0.1:{port}: no TLS connection"),
     ("http://127.0.0.1:{port}", "127.0.0.1:{port}: HTTP 404 without JSON")],
)  # fmt: skip
async def test_an_endpoint_that_is_something_else_is_said_in_words_of_our_own(
    chain: Chain, tmp_path: Path, host: str, said: str
) -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    url = host.format(port=port) + "/secret-of-the-account?key=secret-of-the-account"
    answer = await asyncio.to_thread(command, "run", "show", "--run", "1", *chain.at(url), home=tmp_path)
    await runner.cleanup()

    assert answer.code == 75
    assert answer.said.startswith("error: " + said.format(port=port))
    assert "ssl:" not in answer.said and "host" not in answer.said


@pytest.mark.parametrize("number", ["0", "-1", "700", BIG])
def test_a_run_that_does_not_exist_is_said_with_how_many_there_are(chain: Chain, tmp_path: Path, number: str) -> None:
    wallet = ("--wallet", str(chain.wallets["worker"]))
    for words in (("run", "show"), ("checkpoints", "list"), ("status", *wallet)):
        answer = command(*words, f"--run={number}", *chain.at(), home=tmp_path)
        assert answer.code == 2
        assert answer.said.startswith(f"error: there is no run {number} on this chain: it has ")


# --- Engines


@pytest.mark.skipif(vllm.is_installed(), reason="what is said where vLLM is not installed")
@pytest.mark.parametrize(
    ("options", "said"),
    [(("--engine", "llama"), "there is no engine 'llama': choose one of auto, transformers, vllm"),
     (("--engine", "vllm"), "the vllm engine is not installed: "),
     (("--gpus", "99"), "there is no GPU 99 to use in this machine: "),
     (("--gpus", ""), "--gpus '': give numbers with commas between them, as 0,1"),
     (("--gpus", "1_0"), "--gpus '1_0': give numbers with commas between them, as 0,1"),
     (("--tensor-parallel", "64"), "there is no GPU here to share a model among (--tensor-parallel)")],
)  # fmt: skip
def test_an_engine_that_cannot_run_here_is_refused_before_anything_is_done(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    role = ("--wallet", "none", "--run", "1", "--host", "127.0.0.1")
    commands = [("join", *role), ("validate", *role), ("verify", "none"), ("checkpoints", "examine", "0", "--run", "1")]
    commands += [("devnet", "--folder", str(tmp_path / "folder"))] if options[0] == "--engine" else []
    for words in commands:
        answer = command(*words, *options, home=tmp_path)
        assert answer.code == 2
        assert said in answer.said
    assert list(tmp_path.iterdir()) == []


# --- Numbers

RANGES = {
    ("deploy", "--out", "x.json", "--wallet", "w", "--rpc", "http://h"): {
        "--unbonding": ("-1", "0", BIG), "--faucet-cap": ("-1", BIG), "--faucet-cooldown": ("-1", BIG),
        "--confirmations": ("-1", BIG),
    },
    ("run", "create", "--wallet", "w", "--trainer", STRANGER, "--validator", STRANGER): {
        "--quorum": ("-1", "0"), "--steps": ("-1", "0", BIG), "--audit-leaves": ("-1", "0"), "--pot": ("-1", BIG),
    },
    ("faucet", "--wallet", "w"): {"--amount": ("-1", "0", BIG)},
    ("stake", "unbond", "--wallet", "w"): {"--amount": ("-1", "0", "1e3", "0.0", "1.", f"0.{'0' * 18}1", BIG),
        "--run": ("-1", "0"),
    },
    ("join", "--wallet", "w", "--run", "1"): {"--port": ("-1", "65536", BIG), "--threads": ("-1", "0", BIG)},
    ("validate", "--wallet", "w", "--run", "1"): {"--port": ("-1", BIG), "--threads": ("0", BIG)},
    ("relay", "--wallet", "w", "--run", "1"): {
        "--port": ("-1", BIG), "--upload-limit": ("50", "-1MB", "0MB", "100kB", "1Mbit", "5mb", "5MB/h", "nanMB", BIG),
        "--quota": ("0GB", "5", "5Gbit", "1kB", "5TiB", BIG),
    },
    ("train", "--wallet", "w", "--run", "1", "--model", "tiny"): {
        "--port": ("-1", BIG), "--threads": ("0", BIG), "--batch": ("-1", "0", BIG),
        "--learning-rate": ("-1", "nan", "inf", BIG),
    },
    ("checkpoints", "examine", "0", "--run", "1"): {"--samples": ("-1", "0", BIG), "--threads": ("0", BIG)},
    ("verify", "file"): {"--threads": ("0", BIG)},
    ("devnet",): {
        "--workers": ("-1", "0", BIG), "--validators": ("-1", "0", BIG), "--steps": ("-1", "0", BIG),
        "--samples": ("-1", BIG), "--seconds": ("-1", "0", "nan", "inf", BIG),
    },
}  # fmt: skip
CASES = [(words, option, values) for words, options in RANGES.items() for option, values in options.items()]


@pytest.mark.parametrize(
    ("words", "option", "values"), CASES, ids=[f"{words[0]} {option}" for words, option, _ in CASES]
)
def test_a_number_out_of_range_is_said_by_its_option(
    tmp_path: Path, words: tuple[str, ...], option: str, values: tuple[str, ...]
) -> None:
    for value in values:
        answer = command(*words, f"{option}={value}", home=tmp_path)
        assert answer.code == 2
        assert f"Invalid value for '{option}': Input should be " in answer.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50MB", 50e6), ("400Mbit", 50e6), ("1.5GB/s", 1.5e9), ("200kB", 2e5), ("800 Mbit/s", 1e8), ("200000B", 2e5)],
)
def test_a_rate_is_in_bytes_or_bits_and_powers_of_ten(text: str, rate: float) -> None:
    assert byte_rate(text) == rate
    assert byte_size("1.5TB") == 1_500_000_000_000


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("relay",), "a relay is there to serve weights"),
        (("train", "--model", "tiny"), "everybody has the weights from"),
    ],
)
def test_who_is_there_to_serve_weights_is_not_told_to_serve_none(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    answer = command(*words, "--wallet", "w", "--run", "1", "--no-serve", home=tmp_path)
    assert answer.code == 2
    assert why in answer.said and "leave out --no-serve; --upload-limit keeps" in answer.said


CREATE = ("run", "create", "--model", "tiny", "--pace", "local")
MISTAKES = {
    "quorum": (("--quorum", "2"), "a quorum of 2 cannot be: of 1 validators"),
    "twice": (("--validator", "TRAINER", "--validator", "TRAINER"), "each named once"),
    "share": (("--max-provider-share", "0"), "the run cannot have '0.0' as its max_provider_share: "),
    "share-nan": (("--max-provider-share", "nan"), "cannot have 'nan' as its max_provider_share"),
    "leaves": (("--audit-leaves", BIG), "as its leaves: "),
    "name": (("--name", "x" * 5000), "as its name: String should match"),
    "nobody": (("--trainer", "0x" + "00" * 20), "nobody has that key"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_run_that_cannot_be_is_not_created_and_costs_nothing(chain: Chain, tmp_path: Path, name: str) -> None:
    words, what = MISTAKES[name]
    named = [chain.address("trainer") if word == "TRAINER" else word for word in words]
    if "--trainer" not in named:
        named += ["--trainer", chain.address("trainer")]

    runs = command("run", "show", "--run", "999", *chain.at(), home=tmp_path).said
    stake = command("stake", "show", "--wallet", chain.wallets["relay"], *chain.at(), home=tmp_path).out
    answer = command(
        *CREATE, "--wallet", chain.wallets["relay"], "--validator", chain.address("validator"), *chain.at(), *named,
        home=tmp_path,
    )  # fmt: skip

    assert answer.code == 2
    assert what in answer.said and len(answer.said) < 1000
    assert command("run", "show", "--run", "999", *chain.at(), home=tmp_path).said == runs
    assert command("stake", "show", "--wallet", chain.wallets["relay"], *chain.at(), home=tmp_path).out == stake


def test_a_run_whose_pot_no_faucet_fills_is_not_created(chain: Chain, tmp_path: Path) -> None:
    before = command("run", "show", "--run", "999", *chain.at(), home=tmp_path).said

    answer = command(
        *CREATE, "--wallet", chain.wallets["relay"], "--validator", chain.address("validator"), "--trainer",
        chain.address("trainer"), "--pot", "10000000", *chain.at(), home=tmp_path,
    )  # fmt: skip

    assert answer.code == 1
    assert "faucet" in answer.said.lower()
    assert command("run", "show", "--run", "999", *chain.at(), home=tmp_path).said == before


# --- Addresses, ports, folders


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://host", "http://", "http://[", "http://h:0", "http://h:99999", "http://user:pw@h",
            "http://h/ a", "http://h/?key=1", "http://h\n", "http://" + "a" * 300],
)  # fmt: skip
def test_an_advertised_url_that_no_peer_could_ask_is_said(chain: Chain, tmp_path: Path, url: str) -> None:
    answer = command(
        "relay", "--wallet", chain.wallets["relay"], "--run", "1", "--advertise", url, *chain.at(), home=tmp_path
    )

    assert answer.code == 2
    assert answer.said.startswith("error: --advertise ")


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_an_address_that_means_every_one_needs_a_url_to_announce(chain: Chain, tmp_path: Path, host: str) -> None:
    answer = command("relay", "--wallet", chain.wallets["relay"], "--run", "1", "--host", host, home=tmp_path)

    assert answer.code == 2
    assert answer.said.startswith("error: no peer can reach ") and "--advertise http://" in answer.said


def test_a_port_in_use_is_said(chain: Chain, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = command(
            "relay", "--wallet", chain.wallets["relay"], "--run", str(chain.run), "--host", "127.0.0.1", "--port",
            str(port), *chain.at(), home=tmp_path,
        )  # fmt: skip

    assert answer.code == 2
    assert answer.said.startswith(f"error: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert "choose another --host or --port" in answer.said


def test_a_home_that_is_a_file_is_said_before_anything_is_sent(chain: Chain, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    role = ("--run", "1", "--host", "127.0.0.1")
    for words in (("faucet",), ("relay", *role), ("join", *role), ("rewards", "claim")):
        wallet = tmp_path / f"{words[0]}.json"
        shutil.copyfile(chain.wallets["worker"], wallet)
        shutil.copyfile(chain.wallets["relay"], wallet.with_suffix(".node.json"))  # making one takes seconds
        answer = command(*words, "--wallet", wallet, *chain.at(), home=home)
        assert answer.code == 2
        assert answer.said.startswith(f"error: folder {home} cannot be written to (")
    assert command("wallet", "new", "mine", home=home).code == 2
    assert home.read_text() == ""


def test_a_home_that_is_a_file_is_said_without_the_words_of_the_operating_system(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    asking = ("--wallet", "w", "--rpc", "http://h", *("--deployment", str(tmp_path / "none.json")))
    for words in (
        ("wallet", "new", "w"),
        ("wallet", "show", "w"),
        ("status", "--run", "1", *asking),
        ("faucet", *asking),
    ):
        answer = command(*words, home=home)
        assert answer.code == 2
        assert "a file stands where a folder has to be" in answer.said and "Errno" not in answer.said


def test_a_home_where_nothing_can_be_written_is_said(chain: Chain) -> None:
    answer = command("faucet", "--wallet", chain.wallets["worker"], *chain.at(), home=Path("/proc/self/home"))

    assert answer.code == 2
    assert answer.said.startswith("error: folder /proc/self/home cannot be written to (")


def test_a_second_copy_of_a_node_is_refused_and_the_first_goes_on(chain: Chain, tmp_path: Path) -> None:
    words = ("relay", "--wallet", chain.wallets["relay"], "--run", str(chain.run), "--host", "127.0.0.1", *chain.at())
    first = process(*words, home=tmp_path)
    try:
        assert first.stdout is not None
        assert any("serving" in line for line in first.stdout)
        second = command(*words, home=tmp_path)
        assert second.code == 2
        assert "another process of this machine already runs this key in this run" in second.said
        assert second.said.endswith("stop it first")
        assert first.poll() is None
    finally:
        first.terminate()
    assert finished(first).code == 1


def test_the_version_names_the_protocol_too(tmp_path: Path) -> None:
    answer = command("--version", home=tmp_path)

    assert (answer.code, answer.out) == (0, "intellect-node 0.1.0, protocol 1\n")


def test_the_least_upload_is_for_as_many_files_as_are_always_on_their_way_each_at_its_least_rate() -> None:
    assert LEAST_UPLOAD == LEAST_FILES * LEAST_BYTES_PER_SECOND == 200_000


def test_a_size_or_rate_over_the_upper_bound_is_told_both_bounds() -> None:
    with pytest.raises(typer.BadParameter, match=r"a size from 1MB to 1000000TB, such as 500GB, and is '999999999TB'"):
        byte_size("999999999TB")
    with pytest.raises(typer.BadParameter, match=r"a rate from 200kB to 1000000TB a second, .* and is '999999999TB'"):
        byte_rate("999999999TB")
