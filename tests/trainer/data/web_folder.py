"""A folder behind a web server of this machine."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def web_folder(folder: Path, *, refuses: Callable[[str], bool]) -> Iterator[str]:
    """The address of a server of the files below a folder; it answers 403 to what is refused, a path with its query."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def send_head(self):
            if refuses(self.path):
                self.send_error(403)
                return None
            return super().send_head()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()
