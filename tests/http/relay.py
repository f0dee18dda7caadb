"""A way to a broker that can go dead: what is sent is taken, and nothing of it arrives."""

from __future__ import annotations

import socket
import threading


class Relay:
    def __init__(self, port: int) -> None:
        self.to_port = port
        self.is_dead = threading.Event()
        self.links: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self.to_port))
            self.links += [client, broker]
            for here, there in ((client, broker), (broker, client)):
                threading.Thread(target=self._pass_on, args=(here, there), daemon=True).start()

    def _pass_on(self, here: socket.socket, there: socket.socket) -> None:
        try:
            while data := here.recv(1 << 16):
                if not self.is_dead.is_set():
                    there.sendall(data)
            if not self.is_dead.is_set():
                there.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        # shutdown() first: it wakes who waits in accept() and recv(), before the numbers are somebody else's.
        for link in [self.listener, *self.links]:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            link.close()
