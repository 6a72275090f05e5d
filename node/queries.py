"""Answers to what a person asks: runs, rollout files, folders. Own work is `standing`'s, weights are `exports`'."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from ledger.base import Allocated, Block, Digest, Ledger, Run, RunId, State
from ledger.disk import refusal
from node.config import Home, StateFolder
from node.errors import ConfigError, Malformed
from node.files import disk_refused, locked
from node.membership import open_run
from node.reading import Reader
from node.record import Record
from node.roles.registration import stake_per_node
from node.rollouts import export
from node.rollouts.export import export_parquet
from node.rollouts.file import decode_file, file_root, size_limit
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec

Summary = dict[str, Any]


async def read_record(ledger: Ledger, run: int) -> tuple[RunSpec, Record]:
    """The run's spec and record up to the last confirmed block. Raises: ConfigError, SpecMismatch, Unreachable."""
    found, spec = await open_run(ledger, run)
    record = Record(found)
    await Reader(ledger, record).sync()
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


async def list_runs(ledger: Ledger, newest: int) -> list[Summary]:
    """The `newest` runs of the deployment, the newest last."""
    last = await ledger.run_count()
    head = await ledger.head()
    return [await _listed(ledger, RunId(number), head) for number in range(max(1, last - newest + 1), last + 1)]


async def _listed(ledger: Ledger, number: RunId, head: Block) -> Summary:
    run, state = await ledger.run(number), await ledger.run_state(number)
    spec = _spec_of(run)
    events = await ledger.events(number, run.created_block, head.number)
    return {
        "run": number,
        "name": spec.name if spec else None,
        "state": "ended" if state.ended_at else "running" if state.checkpoints else "waiting",
        "model": spec.model.architecture if spec else None,
        "owner": run.owner,
        "pot": str(state.pot),
        "workers": len({each.node for each in events if isinstance(each, Allocated)}),
        "latest_version": state.checkpoints - 1 if state.checkpoints else None,
    }


def _spec_of(run: Run) -> RunSpec | None:
    """None where the specification is not one that this release can follow."""
    try:
        return RunSpec.parse(run.spec)
    except Malformed:
        return None


def _counts(record: Record) -> dict[str, int]:
    states = [submission.state for submission in record.submissions.values()]
    return {state.name.lower(): states.count(state) for state in State if states.count(state)}


def read_rollouts(spec: RunSpec, path: Path) -> tuple[Rollout, ...]:
    """The rollouts in a file of this run. Raises: ConfigError: there is none, or it holds something else."""
    return _decoded(spec, path, _read(spec, path))


def _read(spec: RunSpec, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size_limit(spec) + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {refusal(error)}") from error


def _decoded(spec: RunSpec, path: Path, data: bytes) -> tuple[Rollout, ...]:
    try:
        return decode_file(data, spec)
    except Malformed as error:
        raise ConfigError(f"{path} is no rollout file of this run: {error}") from error


def export_rollouts(spec: RunSpec, record: Record, path: Path, out: Path) -> int:
    """Writes a rollout file as Parquet; how many rows.

    Raises: ConfigError: the chain has no such commitment, or it is to another file.
    """
    try:
        commitment = Digest(bytes.fromhex(path.stem.removeprefix("0x")))
    except ValueError as error:
        raise ConfigError(f"{path} is not named after a commitment, as rollout files are") from error
    submission = record.submissions.get(commitment)
    if submission is None:
        raise ConfigError(f"run {record.run.id} has no commitment {path.stem}")
    made = submission.made
    data = _read(spec, path)
    rows = _decoded(spec, path, data)
    if file_root(data, size_limit(spec)) != made.root:
        raise ConfigError(f"{path} is not the file that was committed to: it was changed, or has another's name")
    return export_parquet([export.SubmissionRows(commitment, made.node, made.version, made.slot, rows)], out)


def run_folders(home: Home) -> list[Path]:
    """The folders that roles keep, one per run and key."""
    return sorted(folder for folder in (home.folder / "runs").glob("*/*") if folder.is_dir())


@contextmanager
def idle(folders: Iterable[StateFolder]) -> Iterator[None]:
    """Keeps roles out of `folders` for as long as the block runs. Raises: ConfigError: one runs there."""
    with ExitStack() as held:
        for state in folders:
            held.enter_context(locked(state.lock))
        yield


def delete_unused(folders: Sequence[Path], home: Home) -> None:
    """Deletes folders, and what is empty then between them and `home`.

    Raises:
        ConfigError: a running role of this machine holds one of them; all are there still.
        StoreError: one cannot be deleted.
    """
    with ExitStack() as held:
        try:
            held.enter_context(idle(map(StateFolder, folders)))
        except ConfigError as error:
            raise ConfigError(f"{error}; nothing was deleted") from error
        for folder in folders:
            _delete(folder)
            with suppress(OSError):  # it holds others
                for parent in folder.parents:
                    if home.folder in parent.parents:
                        parent.rmdir()


def _delete(folder: Path) -> None:
    try:
        rmtree(folder)
    except OSError as error:
        raise disk_refused(f"{folder} cannot be deleted", error) from error
