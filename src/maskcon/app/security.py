"""Guard every request: check host, origin, token and size; answer with a strict content policy."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = b"x-maskcon-token"
MOST_JSON_BYTES = 8 << 20
MOST_UPLOAD_BYTES = 32 << 20
UPLOAD = "/api/upload"
METHODS = ("GET", "HEAD", "POST")
ALL_ADDRESSES = ("0.0.0.0", "::")  # hosts that mean every address of this machine
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class TooLargeError(Exception):
    """A body is larger than allowed, whatever its header says."""


def new_token() -> str:
    """Draw a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def served_hosts(host: str, port: int) -> frozenset[str]:
    """Return the accepted values of the headers Host and, after `http://`, Origin."""
    shown = {shown_host(name.lower()) for name in ("127.0.0.1", "localhost", host)}
    return frozenset(f"{name}:{port}" for name in shown) | (shown if port == 80 else frozenset())


def shown_host(host: str) -> str:
    """Write a host as in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


class Guard:
    """ASGI middleware: 403 for a foreign host, origin or token, 405 for other methods, 413 for large bodies.

    `/?token=...` sets the cookie and redirects to `/`. Nothing else is answered without the cookie or the header.

    Args:
        host: the address that the server listens on. If it means all addresses of this machine, a request may also
            name the address at which it arrived, but never a name: its owner may point it here (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int) -> None:
        self.app, self._hosts = app, served_hosts(host, port)
        self._on_all_addresses, self._port = host in ALL_ADDRESSES, port
        self._token, self._cookie = token.encode(), f"maskcon_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        secured = _with_headers(send)
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = self._hosts
        if self._on_all_addresses and scope["server"]:
            arrived = scope["server"][0].removeprefix("::ffff:").partition("%")[0]
            hosts |= served_hosts(arrived, self._port)
        refusal = _refusal(headers, hosts)
        if refusal:
            return await _answer(secured, 403, refusal)
        if scope["method"] not in METHODS:
            return await _answer(secured, 405, f"{scope['method'][:20]} is not supported; use GET or POST")
        given = (
            parse_qs(scope["query_string"].decode("latin-1")).get("token", []) if scope["path"] == "/" else []
        )
        if given and self._is_token(given[0].encode("utf-8", "surrogateescape")):
            cookie = f"{self._cookie}={self._token.decode()}; HttpOnly; SameSite=Strict; Path=/"
            return await _answer(secured, 303, "", ((b"location", b"/"), (b"set-cookie", cookie.encode())))
        if not self._knows_token(headers):
            return await _answer(
                secured, 403, "the token is missing or wrong; open the address that `maskcon explore` printed"
            )
        cap = MOST_UPLOAD_BYTES if scope["path"] == UPLOAD else MOST_JSON_BYTES
        declared = headers.get(b"content-length", [b"0"])[0]
        too_large = f"the body is larger than {cap >> 20} MB"
        if not declared.isdigit() or int(declared) > cap:
            return await _answer(secured, 413, too_large)
        return await self.app(scope, _capped(receive, cap, too_large), secured)

    def _knows_token(self, headers: dict[bytes, list[bytes]]) -> bool:
        if any(self._is_token(value) for value in headers.get(TOKEN_HEADER, [])):
            return True
        for line in headers.get(b"cookie", []):
            for part in line.split(b";"):
                name, _, value = part.strip().partition(b"=")
                if name == self._cookie.encode() and self._is_token(value):
                    return True
        return False

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self._token)


def _refusal(headers: dict[bytes, list[bytes]], hosts: frozenset[str]) -> str:
    """Return why a host or origin is refused; empty if it is accepted."""
    named = [value.decode("latin-1").lower() for value in headers.get(b"host", [])]
    if len(named) != 1 or named[0] not in hosts:
        return "this host is not served; open the address that `maskcon explore` printed"
    for origin in headers.get(b"origin", []):
        if origin.decode("latin-1").lower() not in {f"http://{host}" for host in hosts}:
            return "requests from other pages are refused"
    if any(
        value not in (b"same-origin", b"none", b"same-site") for value in headers.get(b"sec-fetch-site", [])
    ):
        # opening the address from a mail or chat is a navigation from another site
        navigates = headers.get(b"sec-fetch-mode", [b""])[0] == b"navigate"
        if not navigates:
            return "requests from other pages are refused"
    return ""


def _with_headers(send: Send) -> Send:
    async def secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await send(message)

    return secured


def _capped(receive: Receive, cap: int, too_large: str) -> Receive:
    received = 0

    async def capped() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > cap:
            raise TooLargeError(too_large)
        return message

    return capped


async def _answer(send: Send, status: int, error: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    body = json.dumps({"error": error}).encode() if error else b""
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    if status == 413:
        start.append((b"connection", b"close"))  # the rest of the body stays unread
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
