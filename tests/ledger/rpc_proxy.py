"""An RPC endpoint between a ledger and anvil, which can lie, fall silent, or kill: what a test tells it to."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

Request = dict[str, Any]
Answer = web.Response | None


async def forward(_: Request) -> Answer:
    """Asks anvil."""
    return None


def result(request: Request, value: object) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": request["id"], "result": value})


def error(request: Request, code: int, message: str, data: object = None) -> web.Response:
    problem = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return web.json_response({"jsonrpc": "2.0", "id": request["id"], "error": problem})


class RpcProxy:
    """Answers with what `rule` returns for a request, and forwards it where that is None. `asked` lists methods."""

    def __init__(self, target: str, rule: Callable[[Request], Awaitable[Answer]] = forward) -> None:
        self.rule = rule
        self.asked: list[str] = []
        self._target = target
        self._runner: web.ServerRunner | None = None
        self._port = 0
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1/secret-of-the-account"

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        await self.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.down()
        assert self._session is not None
        await self._session.close()

    async def up(self) -> None:
        """Listens, on the same port every time."""
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def down(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, http: web.BaseRequest) -> web.Response:
        request: Request = await http.json()
        self.asked.append(request["method"])
        answer = await self.rule(request)
        if answer is not None:
            return answer
        assert self._session is not None
        async with self._session.post(self._target, json=request) as response:
            return web.Response(body=await response.read(), content_type="application/json")


async def ask(url: str, method: str, *parameters: object) -> Any:
    """The result of one request, without the code under test."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return (await response.json())["result"]


async def wait_until(true: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await true():  # noqa: ASYNC110 - what is awaited happens in other processes
            await asyncio.sleep(0.02)
