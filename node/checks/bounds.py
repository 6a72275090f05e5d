"""Check 4, bounds: every number of a rollout lies where such a number can lie.

Proofs are parsed here too. One that does not parse needs neither a model nor an audit to see, so it costs what cheap
faults cost, on every leaf, and can never reach a proof's arithmetic.
"""

import math
from collections.abc import Iterable, Iterator

from hashing.encoding import Proof
from hashing.errors import MalformedProof
from node.checks.subject import Subject
from node.rollouts.file import chunks
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Rollout
from node.runspec import RunSpec
from node.verdicts import Check, Rejected


def verify_bounds(subject: Subject, leaf: int, rollout: Rollout) -> Rejected | None:
    """Tokens are in the vocabulary, lists as long as they may and must be, floats finite and not -0, proofs parse."""
    return next(_faults(subject.spec, leaf, rollout), None)


def _faults(spec: RunSpec, leaf: int, rollout: Rollout) -> Iterator[Rejected]:
    def fault(measured: object, threshold: str, detail: str) -> Rejected:
        return Rejected(Check.BOUNDS, leaf, str(measured), threshold, detail)

    outputs, vocabulary = len(rollout.output_ids), spec.model.vocabulary
    for name, tokens, most in (
        ("prompt", rollout.prompt_ids, spec.sampling.max_prompt_tokens),
        ("output", rollout.output_ids, spec.sampling.max_output_tokens),
    ):
        if not 1 <= len(tokens) <= most:
            yield fault(len(tokens), f"1 to {most}", f"{name} tokens")
        if tokens and not (min(tokens) >= 0 and max(tokens) < vocabulary):
            yield fault(max(tokens), f"0 to {vocabulary - 1}", f"a token of the {name} is not in the vocabulary")
    if len(rollout.logprobs) != outputs:
        yield fault(len(rollout.logprobs), str(outputs), "log-probabilities")
    if not _plain((*rollout.logprobs, rollout.reward)):
        yield fault("not finite, or -0", "finite", "a log-probability or the reward")
    if rollout.finish not in {FINISH_EOS, FINISH_LENGTH}:
        yield fault(rollout.finish, "0 or 1", "finish")
    if len(rollout.proofs) != chunks(outputs, spec):
        yield fault(len(rollout.proofs), str(chunks(outputs, spec)), "proofs")
    yield from (fault("malformed", "258 bytes in range", why) for why in _malformed(rollout.proofs))


def _plain(values: Iterable[float]) -> bool:
    return all(math.isfinite(value) and (value != 0 or math.copysign(1, value) > 0) for value in values)


def _malformed(proofs: Iterable[bytes]) -> Iterator[str]:
    for chunk, proof in enumerate(proofs):
        try:
            Proof.parse(proof)
        except MalformedProof as error:
            yield f"proof {chunk}: {error}"
