"""JSON-RPC over HTTP, asked of several endpoints in turn; an answer counts once it is parsed.

Written on aiohttp rather than on a web3 provider, which reads answers of any size and fails on malformed ones with
whatever its formatters happen to raise.

Leaves out what the calls mean.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic_core import from_json

from ledger.errors import LedgerError, Unreachable, WrongChain
from ledger.reverts import decode_revert
from ledger.wire import BadAnswer, byte_string, member, quantity, text

MAX_ANSWER_BYTES: Final = 32 * 2**20  # 2,000 blocks of 300 submissions are about 30 MB of logs
TIMEOUT_SECONDS: Final = 10.0
REVERT_CODE: Final = 3  # geth's JSON-RPC code of "execution reverted"; anvil's too
CONNECTIONS: Final = 16

T = TypeVar("T")
Request = tuple[str, list[object]]


class Refused(Unreachable):
    """Every endpoint that answered refused the request, and not because a contract said no."""


@dataclass(slots=True)
class Endpoint:
    """`label` is what messages may show: the path of an RPC URL is often a secret."""

    url: str
    label: str
    right_chain: bool = False


class Rpc:
    """The endpoints of one chain. The one that answered last is asked first."""

    def __init__(self, urls: Sequence[str], chain_id: int | None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """`chain_id` None takes whatever chain the endpoints serve. Raises: Unreachable if a URL is not http(s)."""
        self._endpoints = [_endpoint(url) for url in urls]
        self._chain_id = chain_id
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._ids = itertools.count(1)

    async def ask(self, method: str, parameters: list[object], parse: Callable[[object], T]) -> T:
        """`parse` of the answer to one request.

        Raises:
            Reverted: a contract refused.
            Refused: the endpoints understood and refused.
            Unreachable: no endpoint gave an answer that `parse` takes.
        """
        return await self.ask_together([(method, parameters)], lambda answers: parse(answers[0]))

    async def ask_together(self, requests: Sequence[Request], parse: Callable[[list[object]], T]) -> T:
        """Like `ask`, with all answers from one endpoint, in order: none can be older than the one before it."""
        problems: list[str] = []
        refusal: Refused | None = None
        for endpoint in tuple(self._endpoints):
            try:
                result = parse([await self._request(endpoint, *request) for request in requests])
            except Refused as problem:
                refusal = refusal or problem
            except (BadAnswer, Unreachable, WrongChain) as problem:
                problems.append(f"{endpoint.label}: {problem}")
            else:
                self._prefer(endpoint)
                return result
        raise refusal or Unreachable("; ".join(problems) or "no RPC endpoint is set")

    async def require_chain(self) -> None:
        """Every endpoint that answers serves the right chain, and at least one answers.

        Raises: WrongChain, Unreachable.
        """
        problems: list[str] = []
        for endpoint in self._endpoints:
            try:
                await self._check_chain(endpoint)
            except (BadAnswer, Unreachable) as problem:
                problems.append(f"{endpoint.label}: {problem}")
        if len(problems) == len(self._endpoints):
            raise Unreachable("; ".join(problems) or "no RPC endpoint is set")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _prefer(self, endpoint: Endpoint) -> None:
        if self._endpoints[0] is not endpoint:
            self._endpoints.remove(endpoint)
            self._endpoints.insert(0, endpoint)

    async def _check_chain(self, endpoint: Endpoint) -> None:
        served = quantity(await self._post(endpoint, "eth_chainId", []))
        if self._chain_id is not None and served != self._chain_id:
            raise WrongChain(f"{endpoint.label} serves chain {served}, not {self._chain_id}")
        endpoint.right_chain = True

    async def _request(self, endpoint: Endpoint, method: str, parameters: list[object]) -> object:
        if not endpoint.right_chain:
            await self._check_chain(endpoint)
        return await self._post(endpoint, method, parameters)

    async def _post(self, endpoint: Endpoint, method: str, parameters: list[object]) -> object:
        number = next(self._ids)
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}).encode()
        try:
            status, content = await self._exchange(endpoint.url, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            endpoint.right_chain = False  # whatever answers next may be another node
            raise Unreachable(str(problem) or type(problem).__name__) from None  # the cause holds the URL
        return _result(_parsed(content, status), number)

    async def _exchange(self, url: str, body: bytes) -> tuple[int, bytes]:
        """HTTP status and body of the answer; BadAnswer where it is too long."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        if self._session.closed:
            raise Unreachable("this ledger was closed")
        headers = {"Content-Type": "application/json"}
        async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            content = bytearray()
            async for part in response.content.iter_chunked(2**16):
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise BadAnswer(f"an answer over {MAX_ANSWER_BYTES} bytes")
            return response.status, bytes(content)


def _endpoint(url: str) -> Endpoint:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Unreachable("an RPC endpoint is an http(s) URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Unreachable("an RPC endpoint is an http(s) URL")
    return Endpoint(url, parts.netloc.rpartition("@")[2])


def _parsed(content: bytes, status: int) -> object:
    # not json.loads: eth_account's dependency py_ecc sets Python's recursion limit to 100,000, at which a few thousand
    # nested brackets overflow the C stack and end the process; this parser has a limit of its own
    try:
        return from_json(content)
    except ValueError:
        raise BadAnswer(f"HTTP {status} without JSON") from None


def _result(answer: object, number: int) -> object:
    """The result in a JSON-RPC answer to request `number`. Raises: BadAnswer, Reverted, Refused."""
    if isinstance(answer, dict) and answer.get("error") is not None:
        raise _refusal(answer["error"])
    if member(answer, "id") != number:
        raise BadAnswer("an answer to another request")
    return member(answer, "result")


def _refusal(error: object) -> LedgerError:
    if not isinstance(error, dict):
        return Refused("an error of no known form")
    message, data = text(error.get("message")), error.get("data")
    if isinstance(data, dict):  # some clients wrap it once more
        data = data.get("data")
    revert = _hex_or_none(data)
    if revert is not None and len(revert) >= 4:
        return decode_revert(revert)
    if error.get("code") == REVERT_CODE or "execution reverted" in message.lower():
        return decode_revert(b"")
    return Refused(message or "an error without a message")


def _hex_or_none(value: object) -> bytes | None:
    try:
        return byte_string(value)
    except BadAnswer:
        return None


def call_request(to: str, data: bytes, sender: str | None = None, value: int = 0, block: str = "latest") -> Request:
    """An `eth_call`. Without `sender` it comes from nobody in particular."""
    transaction: dict[str, object] = {"to": to, "data": "0x" + data.hex()}
    if sender is not None:
        transaction |= {"from": sender, "value": hex(value)}
    return "eth_call", [transaction, block]
