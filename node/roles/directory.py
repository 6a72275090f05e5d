"""Who can be asked for what, by the endpoints that they announced on chain. Every URL is hostile until vetted."""

from collections.abc import Iterable, Iterator

from ledger.base import Address
from node.record import Record


def url_of(record: Record, who: Address) -> str | None:
    """The last URL that `who` announced, without a trailing slash."""
    url = record.endpoints.get(who)
    return url.rstrip("/") if url else None


def weight_sources(record: Record, me: Address) -> tuple[str, ...]:
    """Who may hold a checkpoint: relays first, then validators, the trainer, and workers with stake, each once."""
    params = record.run.params
    order = (*sorted(record.relays), *params.validators, params.trainer, *_staked(record))
    return tuple(dict.fromkeys(_urls(record, order, me)))


def _staked(record: Record) -> Iterator[Address]:
    """The nodes whose first allocation covers a submission: an address of no cost must not be worth asking."""
    params = record.run.params
    least = params.penalty + params.submission_bond
    return (node for node, made in record.allocated.items() if made.amount >= least)


def validators(record: Record, me: Address) -> dict[Address, str]:
    """The other validators that announced an endpoint."""
    found = {who: url_of(record, who) for who in record.run.params.validators if who != me}
    return {who: url for who, url in found.items() if url}


def file_holders(record: Record, node: Address, me: Address) -> tuple[str, ...]:
    """Who may hold a rollout file of `node`: itself, which made it, then validators and trainer."""
    params = record.run.params
    return tuple(dict.fromkeys(_urls(record, (node, *params.validators, params.trainer), me)))


def file_receivers(record: Record, me: Address) -> tuple[Address, ...]:
    """Whom a worker hands its file: every validator and the trainer."""
    params = record.run.params
    return tuple(dict.fromkeys(who for who in (*params.validators, params.trainer) if who != me))


def _urls(record: Record, order: Iterable[Address], me: Address) -> Iterator[str]:
    for who in order:
        url = url_of(record, who)
        if url and who != me:
            yield url
