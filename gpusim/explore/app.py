"""Web server of the explorer: pages and answers for the browser of this machine only.

It listens on the loopback address alone. It refuses requests whose Host or Origin is not its own. So no web page can reach
it through a name that points here (DNS rebinding). The policy of its answers loads nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import warnings
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpusim.errors import ConfigError
from gpusim.explore.answers import Answer, RefusedError
from gpusim.explore.forms import FORMS
from gpusim.explore.pages import (
    ASSETS,
    SCRIPTS,
    answer_document,
    answer_fragment,
    asset,
    form_page,
    index_page,
    refusal_document,
)
from gpusim.explore.worker import LOOK_S, Gone, Workers

LOOPBACK: Final = "127.0.0.1"

MOST_QUERY: Final = 8000
"""Most characters of a query; all forms need fewer."""

Ask = Callable[[str, Mapping[str, str], bool, Gone], Answer]
"""Function from (page, words, whether for a browser without scripts, whether who asks has left) to the answer.

It may raise RefusedError."""

FOREIGN: Final = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site where another site sends the browser here."""

HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {SCRIPTS}; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""


class OnlyHere:
    """ASGI middleware that passes on requests of this machine's browser only, and adds ``HEADERS`` to the answers."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = {f"{host}:{port}" for host in (LOOPBACK, "localhost")}
        if port == 80:
            self.hosts |= {LOOPBACK, "localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._refusal(Headers(scope=scope), scope)
        app = self.app if refused is None else PlainTextResponse(refused + "\n", status_code=403)
        await app(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers, scope: Scope) -> str | None:
        hosts, origin = headers.getlist("host"), headers.get("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return f"this answers to {' and '.join(sorted(self.hosts))} alone"
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return "this answers no page of another origin"
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        is_link = is_link and not scope["path"].startswith("/api/")
        if headers.get("sec-fetch-site") in FOREIGN and not is_link:  # a frame is no link
            return "this answers no page of another site"
        if len(scope["query_string"]) > MOST_QUERY:
            return f"the query is longer than {MOST_QUERY} characters"
        return None


async def answer_to(ask: Ask, request: Request, page: str, words: Mapping[str, str], is_plain: bool) -> Answer:
    """Answer of ``ask`` in a thread. The thread can ask whether the client has left."""
    gone = threading.Event()

    async def look() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(LOOK_S)
        gone.set()

    looking = asyncio.create_task(look())
    try:
        return await run_in_threadpool(ask, page, words, is_plain, gone.is_set)
    finally:
        looking.cancel()


def make_app(ask: Ask, port: int) -> ASGIApp:
    """ASGI app with the pages and answers; ``port`` is the port that it listens on."""

    async def index(request: Request) -> Response:
        del request
        return HTMLResponse(index_page())

    async def form(request: Request) -> Response:
        if request.query_params and request.headers.get("sec-fetch-site") in FOREIGN:  # a link must start no work
            return RedirectResponse(request.url.path, status_code=303)
        made = FORMS[request.path_params["page"]]()
        words = {name: text for name, text in request.query_params.items() if name != "plain"}
        answer, refusal = None, None
        if "plain" in request.query_params:  # a browser without JavaScript
            try:
                answer = await answer_to(ask, request, made.page, words, True)
            except RefusedError as error:
                refusal = (str(error), error.field)
        return HTMLResponse(form_page(made, words, answer=answer, refusal=refusal))

    async def api(request: Request) -> Response:
        page = request.path_params["page"]
        try:
            answer = await answer_to(ask, request, page, dict(request.query_params), False)
        except RefusedError as error:
            return JSONResponse(refusal_document(str(error), error.field), status_code=422)
        return JSONResponse(answer_document(answer, answer_fragment(answer)))

    async def file(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response(asset(name), media_type=ASSETS[name])

    def route(path: str, endpoint: Any, page: str = "") -> Route:
        async def with_page(request: Request) -> Response:
            request.path_params["page"] = page
            found: Response = await endpoint(request)
            return found

        return Route(path, with_page, methods=["GET"])

    routes = [route("/", index), route("/index.html", index), *(route(f"/{name}", file) for name in ASSETS)]
    for name in FORMS:
        routes += [route(f"/{name}.html", form, name), route(f"/api/{name}", api, name)]
    return OnlyHere(Starlette(routes=routes), port)


def listening(port: int) -> socket.socket:
    """Socket on the loopback address; port 0 is any free one.

    Raises:
        ConfigError: the port is taken, or not allowed.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
    except OSError as error:
        found.close()
        raise ConfigError(f"--port {port}: {error.strerror}; use another, or --port 0 for any that is free") from None
    found.listen(64)
    return found


def _warm_up(worker: Workers) -> None:
    """Answer the default request of each page in advance. The modules of the page of banks take longest to load."""
    for page in sorted(FORMS, reverse=True):
        with suppress(RefusedError):
            worker.ask(page, {})


def serve(found: socket.socket, *, opens: bool, tell: Callable[[str], None]) -> None:
    """Serve on ``found`` until Ctrl-C; ``tell`` gets the address, ``opens`` shows it in the browser."""
    port = found.getsockname()[1]
    address = f"http://{LOOPBACK}:{port}/"
    worker = Workers()
    config = uvicorn.Config(
        make_app(worker.ask, port), log_level="warning", access_log=False, lifespan="off", server_header=False, ws="none",
        proxy_headers=False, timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=_warm_up, args=(worker,), daemon=True).start()
    try:
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # if Ctrl-C comes before it begins
        with suppress(KeyboardInterrupt):
            signal.signal(signal.SIGINT, server.handle_exit)  # before the loop runs, an exception would stop its making
            tell(address)
            if opens:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
            server.run(sockets=[found])
    finally:
        worker.end()
        found.close()

