"""Why a proof, a hash or a draw could not be computed.

HashingError
|-- MalformedProof   a proof from outside is not one: count it against its maker
|-- ChunkTooSmall    fewer values than a proof has points
|-- NonFinite        NaN or infinity among one's own hidden states: the model or engine is broken
|-- NoModulus        no permitted modulus tells the largest values' positions apart
`-- OutOfRange       an integer, address or digest that does not fit its place in a hash
"""


class HashingError(Exception):
    """Base of all errors of this package."""


class MalformedProof(HashingError):
    """A proof is of another length or count, or holds a number outside its range."""


class ChunkTooSmall(HashingError):
    """A chunk of hidden states has fewer values than a proof has points."""


class NonFinite(HashingError):
    """Hidden states computed here hold NaN or infinity: nothing can be proved or compared with them."""


class NoModulus(HashingError):
    """Under every permitted modulus two of the largest values' positions fall together."""


class OutOfRange(HashingError):
    """A value does not fit the word that it would be hashed as, or a list is empty that must not be."""
