"""Holds connections to a server: half-sent heads, and idle connections before and after a request.

Prints how many are open when all have been opened, and how many the server has closed at the end.
"""

import resource
import selectors
import socket
import sys

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
HEADS = [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"]

held = selectors.DefaultSelector()
for number in range(count):
    connection = socket.create_connection((address, port))
    connection.sendall(HEADS[number % len(HEADS)])
    connection.setblocking(False)
    held.register(connection, selectors.EVENT_READ)


def drop_closed(timeout):
    """Reads what has arrived, and returns the number of connections that the server has closed."""
    closed = 0
    for key, _ in held.select(timeout):
        try:
            is_closed = not key.fileobj.recv(65536)
        except ConnectionError:
            is_closed = True
        if is_closed:
            held.unregister(key.fileobj)
            key.fileobj.close()
            closed += 1
    return closed


closed = drop_closed(0)
print(count - closed, flush=True)
while closed < count:
    closed += drop_closed(None)
print(closed, flush=True)
