"""Runs a program in its own network namespace, with selected ports connected to this machine's loopback.

python own_network.py --serves INNER:OUTER … --calls PORT … -- PROGRAM ARGUMENT…

For programs that listen on a fixed port of all addresses: two of them can run at the same time, and only this machine
reaches them. Needs the rights of a user namespace (`unshare --map-root-user`). Imports only the standard library, so
that it can be started as a file.
"""

import argparse
import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
INTERFACE = struct.Struct("16sh14x")
"""`struct ifreq` of netdevice(7), with flags."""
type Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main() -> None:
    """Runs the program, passes SIGTERM on to it, and exits with its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serves", action="append", default=[], metavar="INNER:OUTER")
    parser.add_argument("--calls", action="append", type=int, default=[], metavar="PORT")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    ports = {int(inner): int(outer) for inner, _, outer in (pair.partition(":") for pair in options.serves)}
    # A socket stays in the network namespace in which it was created, whichever process uses it.
    listeners = {inner: socket.create_server((HOST, outer)) for inner, outer in ports.items()}
    with tempfile.TemporaryDirectory() as folder:
        ways_out = {port: Path(folder) / str(port) for port in options.calls}
        child = os.fork()
        if child == 0:
            _die_with_parent()
            os.unshare(os.CLONE_NEWNET)
            _set_up_loopback()
            os._exit(asyncio.run(_run_inside(listeners, ways_out, options.program)))
        for listener in listeners.values():
            listener.close()
        sys.exit(asyncio.run(_stay_outside(ways_out, child)))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _set_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFFLAGS, INTERFACE.pack(b"lo", 0))
        flags = INTERFACE.unpack(answer)[1] | IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, INTERFACE.pack(b"lo", flags))


async def _run_inside(listeners: dict[int, socket.socket], ways_out: dict[int, Path], program: list[str]) -> int:
    servers = [
        await asyncio.start_server(_connected(lambda port=inner: asyncio.open_connection(HOST, port)), sock=listener)  # type: ignore[misc]
        for inner, listener in listeners.items()
    ]
    servers += [
        await asyncio.start_server(_connected(lambda way=way: asyncio.open_unix_connection(way)), HOST, port)  # type: ignore[misc]
        for port, way in ways_out.items()
    ]
    process = await asyncio.create_subprocess_exec(*program, preexec_fn=_die_with_parent)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.terminate)
    return await process.wait()


async def _stay_outside(ways_out: dict[int, Path], child: int) -> int:
    async with contextlib.AsyncExitStack() as servers:
        for port, way in ways_out.items():
            outside = _connected(lambda port=port: asyncio.open_connection(HOST, port))  # type: ignore[misc]
            await servers.enter_async_context(await asyncio.start_unix_server(outside, way))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os.kill, child, signal.SIGTERM)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
    return os.waitstatus_to_exitcode(status)


def _connected(
    open_other: Callable[[], Awaitable[Stream]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A connection handler that opens another connection and copies data both ways."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await open_other()
        except OSError:
            writer.close()  # as if nothing listened
            return
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    return serve


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other direction ends as well
    finally:
        writer.close()


if __name__ == "__main__":
    main()
