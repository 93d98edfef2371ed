"""A worker of a benchmark in a thread of this process, which sees what a test changes."""

from multiprocessing import Pipe
from threading import Thread


class Local:
    """A worker of the contender `name`, by the `serve(name, pipe)` of a benchmark."""

    def __init__(self, name, serve):
        self.name, self.version = name, None
        self.pipe, theirs = Pipe()
        Thread(target=serve, args=(name, theirs), daemon=True).start()

    def ask(self, *message):
        self.pipe.send(message)
        kind, answer = self.pipe.recv()
        return (True, answer) if kind == "ok" else (False, answer.splitlines()[0])

    def stop(self):
        self.pipe.send(("stop",))
