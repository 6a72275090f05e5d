"""Answers to what a person asks: how a run stands, what a file holds, a version's weights. Own work is `standing`'s."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from ledger.base import NOBODY, Digest, Ledger, RunId, State, Version
from node.clock import SystemClock
from node.config import Home, StateFolder
from node.errors import ConfigError, Malformed
from node.files import disk_refused, locked
from node.log import seconds_text
from node.progress import Progress
from node.record import Record
from node.roles.directory import weight_sources
from node.roles.registration import stake_per_node
from node.rollouts import export
from node.rollouts.export import export_parquet
from node.rollouts.file import decode_file, size_limit
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec
from node.runtime import open_run
from node.shards.client import Downloader
from node.shards.store import CheckpointStore
from node.transport import session

Summary = dict[str, Any]
Say = Callable[[str], None]  # takes one line of progress


async def read_record(ledger: Ledger, run: int) -> tuple[RunSpec, Record]:
    """The run's spec and record up to the last confirmed block. Raises: ConfigError, SpecMismatch, Unreachable."""
    found, spec = await open_run(ledger, run)
    record = Record(found)
    await record.sync(ledger)
    return spec, record


async def run_summary(ledger: Ledger, run: int) -> Summary:
    """A run's terms and how far it is."""
    spec, record = await read_record(ledger, run)
    state = await ledger.run_state(RunId(run))
    return {
        "run": run,
        "name": spec.name,
        "spec": spec.digest.hex(),
        "owner": record.run.owner,
        "trainer": record.run.params.trainer,
        "validators": list(record.run.params.validators),
        "quorum": record.run.params.quorum,
        "relays": sorted(record.relays),
        "latest_version": record.latest,
        "max_steps": spec.max_steps,
        "ended": record.ended is not None,
        "submissions": _counts(record),
        "pot": str(state.pot),
        "reserved": str(state.reserved),
        "stake_per_node": str(stake_per_node(record.run.params)),
    }


def _counts(record: Record) -> dict[str, int]:
    states = [submission.state for submission in record.submissions.values()]
    return {state.name.lower(): states.count(state) for state in State if states.count(state)}


async def export_checkpoint(
    ledger: Ledger, run: int, version: int, target: Path, home: Home, allow_private: bool, say: Say
) -> None:
    """Writes the model folder of `version` to `target`, from this machine's files, else from peers.

    Raises: ConfigError: `target` exists, or the version is not published. NotFound: no peer has it now.
    """
    if await asyncio.to_thread(target.exists):
        raise ConfigError(f"{target} exists: name a folder that does not")
    folder = await fetch_checkpoint(ledger, run, version, home, allow_private, say)
    await asyncio.to_thread(copytree, folder, target)


async def fetch_checkpoint(ledger: Ledger, run: int, version: int, home: Home, allow_private: bool, say: Say) -> Path:
    """The folder of `version` in this user's cache of checkpoints, fetched from peers if need be."""
    _, record = await read_record(ledger, run)
    root = record.root(Version(version))
    if root is None:
        raise ConfigError(f"version {version} is not published: the latest is {record.latest}")
    store = CheckpointStore(home.folder / "exports")
    held = await asyncio.to_thread(store.complete, root)
    if held is not None:
        return held
    private = "" if allow_private else ", private addresses left out (--allow-private)"
    say(f"version {version}: nodes that may hold it: {len(weight_sources(record, NOBODY))}{private}")
    progress = Progress("downloading", "bytes", SystemClock(), resumes=True, version=version)
    async with session(allow_private) as http:
        with progress:
            folder = await Downloader(store, http, lambda: weight_sources(record, NOBODY)).fetch(root, progress)
    say(f"version {version} fetched in {seconds_text(progress.seconds)}")
    return folder


def read_rollouts(spec: RunSpec, path: Path) -> tuple[Rollout, ...]:
    """The rollouts in a file of this run. Raises: ConfigError: there is none, or it holds something else."""
    try:
        with path.open("rb") as file:
            data = file.read(size_limit(spec) + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return decode_file(data, spec)
    except Malformed as error:
        raise ConfigError(f"{path} is no rollout file of this run: {error}") from error


def export_rollouts(spec: RunSpec, record: Record, path: Path, out: Path) -> int:
    """Writes a rollout file as Parquet; how many rows. Raises: ConfigError: the chain has no such commitment."""
    try:
        commitment = Digest(bytes.fromhex(path.stem.removeprefix("0x")))
    except ValueError as error:
        raise ConfigError(f"{path} is not named after a commitment, as rollout files are") from error
    submission = record.submissions.get(commitment)
    if submission is None:
        raise ConfigError(f"run {record.run.id} has no commitment {path.stem}")
    made = submission.made
    rows = read_rollouts(spec, path)
    return export_parquet([export.SubmissionRows(commitment, made.node, made.version, made.slot, rows)], out)


def run_folders(home: Home) -> list[Path]:
    """The folders that roles keep, one per run and key."""
    return sorted(folder for folder in (home.folder / "runs").glob("*/*") if folder.is_dir())


def delete_unused(folder: Path) -> None:
    """Deletes a folder that no running role holds.

    Raises: ConfigError: a process of this machine holds it. StoreError: it cannot be deleted.
    """
    try:
        with locked(StateFolder(folder).lock):
            rmtree(folder)
    except OSError as error:
        raise disk_refused(f"{folder} cannot be deleted", error) from error
