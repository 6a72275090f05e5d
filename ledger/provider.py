"""One JSON-RPC endpoint over HTTP, as a provider for `AsyncWeb3`: answers of bounded size and time, parsed strictly.

web3's own HTTP provider reads answers of any size and follows redirects, and its reading of error answers guesses.
Leaves out what another endpoint would say (`endpoints`).
"""

import os
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from pydantic_core import from_json
from web3.providers.async_base import AsyncJSONBaseProvider
from web3.types import RPCEndpoint, RPCRequest, RPCResponse

from ledger.answers import checked
from ledger.errors import InvalidEndpoint, LedgerError, Unreachable
from ledger.reverts import decode_revert
from ledger.translation import BadAnswer, printable

MAX_ANSWER_BYTES: Final = 32 * 2**20  # 2,000 blocks of 300 submissions are about 30 MB of logs
TIMEOUT_SECONDS: Final = 10.0
REVERT_CODE: Final = 3  # geth's JSON-RPC code of "execution reverted"; anvil's too
CONNECTIONS: Final = 16
EXECUTING: Final = frozenset({"eth_call", "eth_estimateGas"})  # the methods that run a contract, which can say no


class Refused(Unreachable):
    """Every endpoint that answered refused the request, and not because a contract said no."""


class TimedOut(Unreachable):
    """The endpoint did not finish its answer in time."""


class TooLarge(BadAnswer):
    """The endpoint's answer is longer than is read of any, which need not be its fault: ask for less."""


class Provider(AsyncJSONBaseProvider):
    """One endpoint. `label` is what messages may show: the path of an RPC URL is often a secret."""

    global_ccip_read_enabled = False  # by EIP-3668 an endpoint could have this machine ask URLs of its choice

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Raises: InvalidEndpoint if `url` is not http(s)."""
        super().__init__()
        self._url = url
        self.label = _label(url)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def make_request(self, method: RPCEndpoint, params: object) -> RPCResponse:
        """The answer, if it is a result of the form that `method` has.

        Raises:
            Reverted: a contract refused, which only the `EXECUTING` methods can find out.
            Refused: the endpoint understood and refused.
            TimedOut: no whole answer in time.
            Unreachable: no answer.
            TooLarge: an answer over `MAX_ANSWER_BYTES`.
            BadAnswer: anything else.
        """
        request = self.form_request(method, params)
        try:
            status, content = await self._exchange(request)
        except aiohttp.InvalidURL:
            raise Unreachable("its URL cannot be asked") from None  # the error is the URL
        except TimeoutError:  # an OSError too
            raise TimedOut(
                f"no whole answer within {self._timeout.total:g} s: try again, or give another --rpc"
            ) from None
        except (aiohttp.ClientError, OSError) as problem:
            raise Unreachable(_unreached(problem)) from None  # the cause holds the URL
        result = checked(method, result_of(_parsed(content, status), request["id"], method))
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    async def disconnect(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _exchange(self, request: RPCRequest) -> tuple[int, bytes]:
        """HTTP status and body of the answer; TooLarge where it is too long."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        if self._session.closed:
            raise Unreachable("this ledger was closed")
        body, headers = self.encode_rpc_dict(request), {"Content-Type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            content = bytearray()
            async for part in response.content.iter_chunked(2**16):
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise TooLarge(f"an answer over {MAX_ANSWER_BYTES} bytes")
            return response.status, bytes(content)


def _unreached(problem: aiohttp.ClientError | OSError) -> str:
    """Why there was no answer, and what to do. The library's own words are about sockets, or hold the URL."""
    cause = problem.os_error if isinstance(problem, aiohttp.ClientConnectorError) else problem
    number = getattr(cause, "errno", None) or 0
    said = os.strerror(number) if number > 0 else getattr(cause, "strerror", None)  # resolvers count below 0
    why = f" ({said})" if said else ""
    match problem:
        case aiohttp.ClientConnectorDNSError():
            return f"its name is not known{why}: correct --rpc, or look at this machine's network"
        case aiohttp.ClientSSLError():
            return f"no TLS connection{why}: is it http or https? Correct --rpc"
        case aiohttp.ClientConnectorError():
            return f"nobody answers there{why}: start the chain (locally, anvil), or correct --rpc"
        case _:
            return f"the connection broke{why}: try again, or give another --rpc"


def result_of(answer: object, number: object, method: str) -> object:
    """The result in a JSON-RPC answer to request `number` of `method`. Raises: BadAnswer, Reverted, Refused."""
    if not isinstance(answer, dict):
        raise BadAnswer("not a JSON-RPC answer")
    if answer.get("error") is not None:
        raise _refusal(answer["error"], method)
    if answer.get("id") != number:
        raise BadAnswer("an answer to another request")
    if "result" not in answer:
        raise BadAnswer("an answer without a result")
    return answer["result"]


def _label(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:  # no port, or brackets that do not close
        known = None
    if not known:  # nothing of it is repeated: what was pasted in its place may be a secret
        raise InvalidEndpoint("an RPC endpoint is an http(s) URL, such as https://sepolia.base.org: correct --rpc")
    return parts.netloc.rpartition("@")[2]


def _parsed(content: bytes, status: int) -> object:
    # not json.loads: eth_account's dependency py_ecc sets Python's recursion limit to 100,000, at which a few thousand
    # nested brackets overflow the C stack and end the process; this parser has a limit of its own
    try:
        return from_json(content)
    except ValueError:
        raise BadAnswer(f"HTTP {status} without JSON") from None


def _refusal(error: object, method: str) -> LedgerError:
    if not isinstance(error, dict):
        return Refused("an error of no known form")
    message, data = printable(error.get("message")), error.get("data")
    if method not in EXECUTING:  # whoever waits for a block or a log expects no contract's word, and would stop
        return Refused(message or "an error without a message")
    if isinstance(data, dict):  # some clients wrap it once more
        data = data.get("data")
    revert = _hex_or_none(data)
    if revert is not None and len(revert) >= 4:
        return decode_revert(revert)
    if error.get("code") == REVERT_CODE or "execution reverted" in message.lower():
        return Refused(f"{message}: these contracts never refuse without a reason")
    return Refused(message or "an error without a message")


def _hex_or_none(value: object) -> bytes | None:
    if not isinstance(value, str) or not value.startswith("0x"):
        return None
    try:
        return bytes.fromhex(value[2:])
    except ValueError:
        return None
