"""Why a call to the chain did not do what it was asked.

LedgerError
|-- Unreachable    no answer, or none that can be believed: nothing is known, retry
|   |-- TimedOut (`provider`)   one endpoint's answer was not whole in time
|   `-- Refused (`provider`)   the endpoints understood and refused
|       `-- TooWide (`logs`)   even one block's logs are too long an answer
|-- InvalidEndpoint   the URL of an RPC endpoint is none
|-- WrongChain     the node serves another chain than the deployment's
|   `-- ChainReplaced (`endpoints`)   it was started anew while this process ran
|-- Reorganised    blocks that had been read as confirmed were replaced
|-- Contradicted   what the endpoints say does not fit together, however often it is read
|-- NotDeployed    no contract, or another one, stands at the deployment's address
|-- Unconfirmed    sent but not final: look again, never resend
|-- KeystoreError  a wallet file cannot be used
|-- JournalError, SlotTaken (`journal`)   nothing is signed that cannot be written down, or against what was signed
|-- NotExported (`portable`)   a file is no exported journal
|-- DevnetError (`devnet`)   anvil cannot be found or started
|-- InvalidSignature, MalformedMessage   a peer's message is not what it claims to be
`-- Reverted       the contract said no: retrying the same call cannot help
    |-- SlotMismatch, VersionNotOpen, VersionBehind, TooManyOpen, AlreadySubmitted
    |-- RunIsEnded, NodeNotAuthorized, NodeTaken, InsufficientStake, PotTooSmall
    |-- UnknownRun, NothingToClaim, CheckpointTooSoon, VersionMismatch, NotTrainer
    `-- InsufficientNativeBalance   the account cannot pay value and gas
"""

from collections.abc import Mapping

from ledger.base import amount_text


class LedgerError(Exception):
    """Base of all errors of this package."""


class Unreachable(LedgerError):
    """No answer from any RPC endpoint: nothing is known, so retry."""


class InvalidEndpoint(LedgerError):
    """What was given as an RPC endpoint is no http(s) URL."""


class WrongChain(LedgerError):
    """The RPC endpoint serves another chain than the deployment names."""


class Reorganised(LedgerError):
    """Blocks that had been read as confirmed were replaced: what was read is void, and has to be read anew."""


class Contradicted(LedgerError):
    """What the endpoints say of a run does not fit together, and reading it anew has not helped."""


class NotDeployed(LedgerError):
    """No contract code, or other code, stands at an address of the deployment."""


class Unconfirmed(LedgerError):
    """A transaction was sent and is not final: look again, never resend under a new nonce."""


class KeystoreError(LedgerError):
    """A wallet file is missing, unreadable, of another kind, or the password is wrong."""


class InvalidSignature(LedgerError):
    """A signature has the wrong length, high s, another v than 27 or 28, or belongs to no key."""


class MalformedMessage(LedgerError):
    """A message between nodes has an unknown, missing or ill-formed field; the text says which."""


class Reverted(LedgerError):
    """The contract refused; `name` is the custom error, `values` its operands by name."""

    def __init__(self, name: str, values: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.values: dict[str, object] = dict(values or {})
        operands = ", ".join(f"{key}={_operand(value)}" for key, value in self.values.items())
        super().__init__(f"{name}({operands})")


def _operand(value: object) -> object:
    return "0x" + value.hex() if isinstance(value, bytes) else value


class SlotMismatch(Reverted):
    """Another slot is next: the submission was not taken."""


class VersionNotOpen(Reverted):
    """The version is unpublished or has left the async window."""


class VersionBehind(Reverted):
    """The node has committed in a later version already."""


class TooManyOpen(Reverted):
    """The node has as many open submissions as the run permits: wait until one is final."""


class AlreadySubmitted(Reverted):
    """This very commitment is on chain."""


class RunIsEnded(Reverted):
    """The run takes no more checkpoints or submissions."""


class NodeNotAuthorized(Reverted):
    """No provider stands behind the node key."""


class NodeTaken(Reverted):
    """The node key already works for a provider."""


class InsufficientStake(Reverted):
    """The allocation does not cover one more open submission, or the free stake the amount."""

    def __str__(self) -> str:
        wanted, available = (self.values.get(name) for name in ("wanted", "available"))
        if not (isinstance(wanted, int) and isinstance(available, int)):
            return super().__str__()
        return f"{amount_text(wanted)} of stake are wanted and {amount_text(available)} are there"


class PotTooSmall(Reverted):
    """The run's pot cannot cover the pay of one more submission."""


class NothingToClaim(Reverted):
    """No settled reward waits for this provider."""


class CheckpointTooSoon(Reverted):
    """The least interval between two checkpoints has not passed."""


class VersionMismatch(Reverted):
    """Another version is next."""


class NotTrainer(Reverted):
    """The caller is not the run's trainer."""


class UnknownRun(Reverted):
    """The contract has no run of that number."""

    def __str__(self) -> str:
        return f"{self.name}: there is no run {self.values.get('run')} on this chain: correct the number"


class InsufficientNativeBalance(Reverted):
    """An account holds less of the chain's own coin than value and gas may cost; `values` in wei."""

    def __str__(self) -> str:
        account, balance, needed = (self.values.get(name) for name in ("account", "balance", "needed"))
        holds = "too little" if balance is None else f"{balance} wei"
        needs = "" if needed is None else f" and needs {needed} wei"
        return f"{self.name}: {account or 'the account'} holds {holds}{needs} for gas and what it sends"


NAMED: dict[str, type[Reverted]] = {
    kind.__name__: kind
    for kind in (
        SlotMismatch, VersionNotOpen, VersionBehind, TooManyOpen, AlreadySubmitted, RunIsEnded, NodeNotAuthorized,
        NodeTaken, InsufficientStake, PotTooSmall, NothingToClaim, CheckpointTooSoon, VersionMismatch, NotTrainer,
        UnknownRun, InsufficientNativeBalance,
    )
}  # fmt: skip


PASSING: tuple[type[Reverted], ...] = (
    SlotMismatch, VersionNotOpen, VersionBehind, VersionMismatch, TooManyOpen, AlreadySubmitted, RunIsEnded,
    PotTooSmall, CheckpointTooSoon,
)  # fmt: skip
"""That roles take as the chain having moved on: they look again, so that one which was said in error costs nothing."""


def reverted(name: str, values: Mapping[str, object] | None = None) -> Reverted:
    """The exception for custom error `name`: its own class where callers react to it, else plain `Reverted`."""
    return NAMED.get(name, Reverted)(name, values)
