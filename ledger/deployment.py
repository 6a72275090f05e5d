"""Where the contracts stand on one chain: the file that a node reads instead of asking its user for addresses."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from eth_utils.address import is_checksum_address
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ledger.base import Address
from ledger.disk import refusal
from ledger.errors import NotDeployed
from ledger.parsing import first_problem

MAX_FILE_BYTES: Final = 2**16
MAX_CONFIRMATIONS: Final = 2**16
GET_IT: Final = "the run's owner hands the file out, and `intellect-node deploy --out` writes it"


@dataclass(frozen=True, slots=True)
class Deployment:
    """`block` is the first that a contract was deployed in; `confirmations` are blocks to wait for until one counts."""

    chain_id: int
    token: Address
    staking: Address
    coordinator: Address
    block: int
    confirmations: int

    @staticmethod
    def load(path: Path) -> "Deployment":
        """The deployment in the JSON file `path`. Raises: NotDeployed, saying what is wrong with the file."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as problem:
            advice = f": {GET_IT}" if isinstance(problem, FileNotFoundError) else ""
            raise NotDeployed(f"deployment file {path}: {refusal(problem)}{advice}") from problem
        return _parse(content, str(path))

    def save(self, path: Path) -> None:
        """Raises: NotDeployed: the file cannot be written, and is not there; the message has what it would hold."""
        content = json.dumps(asdict(self), indent=2) + "\n"
        temporary = path.with_name(path.name + ".tmp")
        try:
            temporary.write_text(content, "utf-8")
            temporary.replace(path)
        except OSError as problem:
            with suppress(OSError):
                temporary.unlink()
            raise NotDeployed(
                f"the contracts stand, and deployment file {path} cannot be written ({refusal(problem)}): write this "
                f"into a file yourself: {json.dumps(asdict(self))}"
            ) from problem


def for_chain(chain_id: int) -> Deployment | None:
    """The deployment on `chain_id` that ships with this package, if there is one."""
    resource = files("ledger") / "deployments" / f"{chain_id}.json"
    return _parse(resource.read_bytes(), resource.name) if resource.is_file() else None


def _checksummed(value: str) -> str:
    if not is_checksum_address(value):
        raise ValueError("not a checksummed address (EIP-55)")
    return value


_Address = Annotated[str, AfterValidator(_checksummed)]


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    chain_id: int = Field(gt=0, lt=2**63)
    token: _Address
    staking: _Address
    coordinator: _Address
    block: int = Field(ge=0, lt=2**63)
    confirmations: int = Field(ge=0, le=MAX_CONFIRMATIONS)


def _parse(content: bytes, name: str) -> Deployment:
    if len(content) > MAX_FILE_BYTES:
        raise NotDeployed(f"deployment file {name}: over {MAX_FILE_BYTES} bytes")
    try:
        file = _File.model_validate_json(content)
    except ValidationError as problem:
        raise NotDeployed(f"deployment file {name}: {first_problem(problem, 'JSON')}") from None
    return Deployment(
        file.chain_id,
        Address(file.token),
        Address(file.staking),
        Address(file.coordinator),
        file.block,
        file.confirmations,
    )
