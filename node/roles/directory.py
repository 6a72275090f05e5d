"""Who can be asked for what, by the endpoints that they announced on chain. Every URL is hostile until vetted."""

from collections.abc import Iterable, Iterator

from ledger.base import Address, Digest
from node.p2p.addresses import split_endpoint
from node.record import Record


def url_of(record: Record, who: Address) -> str | None:
    """The last URL that `who` announced, without its fragment, which is libp2p's, and without a trailing slash."""
    url, _ = split_endpoint(record.endpoints.get(who, ""))
    return url.rstrip("/") or None


def belongs(record: Record, who: Address) -> bool:
    """Whether `who` has a part in the run: validator, trainer, relay, or a node whose stake covers a submission."""
    params = record.run.params
    return who in params.validators or who == params.trainer or who in record.relays or _covers(record, who)


def core(record: Record) -> list[Address]:
    """Those that every node of the run deals with: relays, validators, trainer."""
    params = record.run.params
    return list(dict.fromkeys((*sorted(record.relays), *params.validators, params.trainer)))


def core_urls(record: Record, me: Address) -> set[str]:
    """Of the others among them."""
    return {url for _, url in _urls(record, core(record), me)}


def weight_sources(record: Record, me: Address) -> tuple[str, ...]:
    """Who may hold a checkpoint: relays first, then validators, the trainer, and workers with stake, each once."""
    return tuple(dict.fromkeys(url for _, url in weight_holders(record, me)))


def weight_holders(record: Record, me: Address) -> Iterator[tuple[Address, str]]:
    """As `weight_sources`, with who announced each."""
    return _urls(record, (*core(record), *staked(record)), me)


def staked(record: Record) -> Iterator[Address]:
    """The nodes whose first allocation covers a submission: an address of no cost must not be worth asking."""
    return (node for node in record.allocated if _covers(record, node))


def _covers(record: Record, node: Address) -> bool:
    params, made = record.run.params, record.allocated.get(node)
    return made is not None and made.amount >= params.penalty + params.submission_bond


def validators(record: Record, me: Address) -> dict[Address, str]:
    """The other validators that announced an endpoint."""
    found = {who: url_of(record, who) for who in record.run.params.validators if who != me}
    return {who: url for who, url in found.items() if url}


def file_holders(record: Record, node: Address, me: Address) -> tuple[str, ...]:
    """Who may hold a rollout file of `node`: itself, which made it, then validators and trainer, each once."""
    return tuple(dict.fromkeys(url for _, url in announced_holders(record, node, me)))


def announced_holders(record: Record, node: Address, me: Address) -> Iterator[tuple[Address, str]]:
    """As `file_holders`, with who announced each."""
    params = record.run.params
    return _urls(record, (node, *params.validators, params.trainer), me)


def file_receivers(record: Record, me: Address) -> tuple[Address, ...]:
    """Whom a worker hands its file: every validator and the trainer."""
    params = record.run.params
    return tuple(dict.fromkeys(who for who in (*params.validators, params.trainer) if who != me))


def keeps(record: Record, commitment: Digest, who: Address) -> bool:
    """Whether `who` is to hold that rollout file: who made it, validators, and the trainer."""
    params, made = record.run.params, record.submissions.get(commitment)
    return who in params.validators or who == params.trainer or (made is not None and made.made.node == who)


def _urls(record: Record, order: Iterable[Address], me: Address) -> Iterator[tuple[Address, str]]:
    for who in order:
        url = url_of(record, who)
        if url and who != me:
            yield who, url
