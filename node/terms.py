"""That the spec which nodes follow and the terms which the contract enforces are the same run."""

from ledger.base import Address, RunParams, Windows, ascending
from node.errors import ConfigError, SpecMismatch
from node.runspec import RunSpec, WindowsSpec

MAX_VALIDATORS = 32  # Runs.MAX_VALIDATORS


def windows_of(spec: WindowsSpec) -> Windows:
    return Windows(**spec.model_dump())


def require_same_terms(spec: RunSpec, params: RunParams) -> None:
    """Raises: SpecMismatch: a term of the spec differs from the contract's; the message names it."""
    economics = spec.economics
    terms: dict[str, tuple[object, object]] = {
        "price_per_unit": (int(economics.price_per_unit), params.price_per_unit),
        "submission_bond": (int(economics.submission_bond), params.submission_bond),
        "fault_bond": (int(economics.fault_bond), params.fault_bond),
        "penalty": (int(economics.penalty), params.penalty),
        "max_open": (economics.max_open, params.max_open),
        "checkpoint_interval": (economics.checkpoint_interval, params.checkpoint_interval),
        "trainer_delay": (economics.trainer_delay, params.trainer_delay),
        "max_units": (spec.units.max_units, params.max_units),
        "async_level": (spec.async_level, params.async_level),
        "windows": (windows_of(spec.windows), params.windows),
    }
    for name, (ours, theirs) in terms.items():
        if ours != theirs:
            raise SpecMismatch(f"{name} is {ours} in the run's spec and {theirs} in its contract: do not join this run")


def params_of(spec: RunSpec, trainer: str, validators: list[str], quorum: int) -> RunParams:
    """What `createRun` is given for `spec`. Raises: ConfigError: keys or quorum that no run can have."""
    economics = spec.economics
    if int(trainer, 16) == 0:
        raise ConfigError(f"the trainer cannot be {trainer}: nobody has that key")
    if len({int(who, 16) for who in validators}) != len(validators) or not 1 <= len(validators) <= MAX_VALIDATORS:
        raise ConfigError(f"a run has 1 to {MAX_VALIDATORS} validators, each named once, and these are {validators}")
    if not 1 <= quorum <= len(validators):
        raise ConfigError(f"a quorum of {quorum} cannot be: of {len(validators)} validators, choose 1 to all")
    return RunParams(
        trainer=Address(trainer),
        validators=tuple(ascending(Address(who) for who in validators)),
        quorum=quorum,
        price_per_unit=int(economics.price_per_unit),
        submission_bond=int(economics.submission_bond),
        fault_bond=int(economics.fault_bond),
        penalty=int(economics.penalty),
        max_units=spec.units.max_units,
        max_open=economics.max_open,
        async_level=spec.async_level,
        checkpoint_interval=economics.checkpoint_interval,
        trainer_delay=economics.trainer_delay,
        windows=windows_of(spec.windows),
    )
