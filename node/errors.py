"""Why a node could not do what it was asked.

NodeError
|-- ConfigError       what the user gave cannot be used: exit code 2
|-- SpecMismatch      this node cannot reproduce a digest of the run: stop
|-- Malformed         bytes from a peer or a file are not what they should be
|-- NotFound          no source has it, now: try again
|   `-- NotYet, Busy (`peers.server`)   why a peer is to repeat its request
|-- EngineError       the model could not be loaded or run
|-- StoreError        the disk or a stored file failed
|-- OutOfStake (`roles.worker`)   the node can submit no more
`-- RoleFailed (`devnet.cast`)    a process of a local network ended as it should not have
"""


class NodeError(Exception):
    """Base of all errors of this package."""


class ConfigError(NodeError):
    """A setting, path or option of the user's cannot be used; the message says what to do."""


class SpecMismatch(NodeError):
    """A digest of the run's specification cannot be reproduced here; the message says which."""


class Malformed(NodeError):
    """Bytes from outside are not what they claim to be; the message says where and why."""


class NotFound(NodeError):
    """No source holds it now; trying again later can help."""


class EngineError(NodeError):
    """The model could not be loaded or run; nothing is known about anybody's rollouts."""


class StoreError(NodeError):
    """A folder or file of this node's own could not be read or written."""
