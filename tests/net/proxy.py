#!/usr/bin/env python3
"""A forward proxy on the loopback interface that sends everything to one server, for tests.

    proxy.py PORT LOG       PORT: of the server at 127.0.0.1, which stands for every host

Prints its port, then serves until SIGTERM, or until the process that started it ends. LOG gets a line for
each request: "GET http://name/path" or "CONNECT name:443". One request a connection.
"""
import asyncio
import ctypes
import signal
import sys


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def serve(reader, writer):
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, _, rest = head.partition("\r\n")
        method, target, version = line.split(" ")
        print(method, target, file=log, flush=True)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + target.split("/", 3)[3]
            fields = [f for f in rest.split("\r\n") if f and not f.lower().startswith("proxy-")]
            up_writer.write("\r\n".join([f"{method} {path} {version}", "Connection: close", *fields, "", ""]).encode("latin-1"))
        await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


signal.signal(signal.SIGTERM, signal.SIG_DFL)
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
with open(sys.argv[2], "w", encoding="utf-8") as log:
    asyncio.run(main())
