"""`intellect-node status` for people: what a wallet has in a run, and what became of its work. Computes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from cli.display import clock, field_text

Row = Mapping[str, Any]

LABELS = {
    "tokens": "in the wallet",
    "rewards": "rewards to claim",
    "gas_wei": "gas of the wallet",
    "node_gas_wei": "gas of the node",
    "allocated": "stake allocated",
    "locked": "of it locked",
    "sources": "read from",
}
TABLES = {
    "submissions": "submissions of this node",
    "weights": "weights on this disk",
    "sharing": "what it gives others, as long as it runs",
    "peers": "among its peers, by libp2p",
    "uncommitted": "made here, not on chain",
    "pending": "signed, not final",
    "attested": "looked at as a validator",
    "used": "submissions and what was trained on",
}


def show_standing(found: Row) -> None:
    """Prints a standing: one fact a line, then each table that there is."""
    facts = {key: value for key, value in found.items() if key not in TABLES and key not in {"time", "block"}}
    facts["chain"] = f"block {found['block']}, {clock(found['time'])}"
    labels = {key: LABELS.get(key, key.replace("_", " ")) for key in facts}
    width = max(map(len, labels.values()))
    for key, value in facts.items():
        typer.echo(f"{labels[key]:<{width}}  {field_text(key, value)}")
    for key, title in TABLES.items():
        if key in found:
            typer.echo(f"\n{title}:" + ("" if found[key] else " none"))
            for row in found[key]:
                typer.echo("\n".join(_lines(key, row)))


def _lines(table: str, row: Row) -> Sequence[str]:
    """One piece of work: what it is and its state, then why."""
    from node.log import bytes_text

    if table == "peers":
        return _among_peers(row)
    if table == "sharing":
        return _shares(row)
    if table == "weights":
        versions = ", ".join(map(str, row["versions"])) or "none whole"
        return (f"  {row['account'][:10]}…  versions {versions}, {bytes_text(row['bytes'])} in all",)
    match table:
        case "pending":
            head = f"  {row['what']}  nonce {row['nonce']}, transaction {row['transaction']}"
        case "uncommitted":
            place = "" if row["version"] is None else f"version {row['version']} slot {row['slot']}, "
            head = f"  {row['commitment'][:12]}…  {place}{bytes_text(row['bytes'])}, made {clock(row['made_at'])}"
        case _:
            head = f"  {_submission(row)}{_own_part(table, row)}"
    paid = row.get("state") == "settled"  # its line says all
    return (head,) if paid else (head, f"      {row['why']}")


def _shares(row: Row) -> Sequence[str]:
    """Line and disk, each beside its limit."""
    from node.log import bytes_text

    limit, quota = row["upload_limit"], row["quota_bytes"]
    most = "no --upload-limit" if limit is None else f"--upload-limit {bytes_text(limit)}/s"
    room = "no --quota" if quota is None else f"--quota {bytes_text(quota)}"
    served = "" if row["serves_weights"] else ", no weights (--no-serve)"
    return (
        f"  {row['account'][:10]}…  sends {bytes_text(row['sent_bytes_s'])}/s ({most}){served}, "
        f"{bytes_text(row['sent_bytes'])} since its start",
        f"      weights take {bytes_text(row['taken_bytes'])} ({room})",
    )


def _among_peers(row: Row) -> Sequence[str]:
    """Whether libp2p is on, whom it has, and whether others reach this node."""
    head = f"  {row['account'][:10]}…  as of {clock(row['at'])}"
    if not row["on"]:
        return (f"{head}  off: {row['why'] or 'not started yet'}",)
    nodes = ", ".join(sorted({peer["node"][:10] + "…" for peer in row["peers"]}))
    return (
        f"{head}  peer id {row['peer_id']}, port {row['port']}",
        f"      {len(row['peers'])} peers connected" + (f": {nodes}" if nodes else ""),
        f"      reachable from outside: {_reachable(row)}",
    )


def _reachable(row: Row) -> str:
    if not row["announced"]:
        return "not meant to be (--no-inbound)"
    if row["reachable"] is None:
        return "unknown, nobody has tried"
    from node.p2p.reach import ADVICE

    by = ", ".join(who[:10] + "…" for who in row["reachable_by"])
    advice = "" if row["reachable"] else f": {ADVICE}"
    return f"{'yes' if row['reachable'] else 'no'}, by {by} at {clock(row['reachable_at'])}{advice}"


def _submission(row: Row) -> str:
    from ledger.base import amount_text

    amount = f"  {amount_text(int(row['reward']))}" if int(row["reward"]) else ""
    lost = f"  lost {amount_text(int(row['slashed']))}" if int(row["slashed"]) else ""
    made = f"version {row['version']} slot {row['slot']}  {row['commitment'][:12]}…  {clock(row['submitted_at'])}"
    return f"{made}  {row['state']}{amount}{lost}"


def _own_part(table: str, row: Row) -> str:
    if table == "attested":
        parts = [f"of {row['node'][:10]}…"]
        parts += ["held"] if row["held_at"] is not None else []
        parts += [f"{row['clean_leaves']} rollouts clean"] if row["clean_leaves"] is not None else []
        parts += [f"fault {fault['check']}" for fault in row["faults"]]
        parts += ["reported on chain"] if row["reported"] else []
        return "  " + ", ".join(parts)
    if table == "used":
        used = "unknown here" if row["used_groups"] is None else f"{row['used_groups']} of {row['groups']} groups used"
        return f"  of {row['node'][:10]}…, {used}"
    return ""
