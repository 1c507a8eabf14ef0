"""Serve a workspace over HTTP until a signal ends it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import anyio.to_thread
import uvicorn

from maskcon._utils.errors import UsageError
from maskcon.app.routes import build_app
from maskcon.app.security import ALL_ADDRESSES, Guard, new_token, shown_host
from maskcon.app.workspace import Workspace
from maskcon.data.decoding import decompression_bombs_refused

THREADS = 8  # for requests; decoding takes memory in each
ENDING_SECONDS = 2
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)


class _Server(uvicorn.Server):
    """Stops on a signal without raising it again, so that the caller can close what is open."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._end) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.should_exit = True


def serve(
    workspace: Workspace,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[..., None],
) -> None:
    """Serve until a signal such as SIGINT, then write kinds.csv and release the folder.

    Args:
        port: 0 chooses a free one.
        ready: called once the port is open, with the address, token included, and where other machines are served
            with the address for them.

    Raises:
        UsageError: the host or port cannot be used.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(workspace.close)
        opened = stack.enter_context(open_port(host, port))
        number = int(opened.getsockname()[1])
        token = new_token()
        app = Guard(build_app(workspace), token=token, host=host, port=number)
        stack.enter_context(decompression_bombs_refused())
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=ENDING_SECONDS,
            callback_notify=None,
        )
        server = _Server(config)
        names = ("127.0.0.1", *_address_for_others()) if host in ALL_ADDRESSES else (host,)
        ready(*(f"http://{shown_host(name)}:{number}/?token={token}" for name in names))

        threading.Thread(target=_warm_up, name="maskcon-warm-up", daemon=True).start()

        async def run() -> None:
            anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
            await server.serve(sockets=[opened])

        anyio.run(run)


def _address_for_others() -> list[str]:
    """Return the address of this machine in its outward network, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route; sends nothing
        except OSError:
            return []
        return [str(probe.getsockname()[0])]


def _warm_up() -> None:
    """Import in advance what the first split of a kind needs."""
    import scipy.cluster.hierarchy  # noqa: F401
    import sklearn.cluster  # noqa: F401


def open_port(host: str, port: int) -> socket.socket:
    """Open a port to listen on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(128)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot listen on {host}, port {port} ({reason}); choose another --port or --host"
        ) from None
    return opened
