"""Chromium without a display: pages that send what a test asks of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

with_browser = pytest.mark.skipif(CHROMIUM is None, reason="without a browser")

DRAWN = """
const drawn = setInterval(() => {
  const places = [...document.querySelectorAll("[data-chart]")].filter((place) => place.clientWidth);
  if (!places.every((place) => place.textContent || place.querySelector("svg"))) return;
  clearInterval(drawn);
  send(document.documentElement.outerHTML);
}, 100);
"""
"""Sends the page once its visible charts are drawn."""


class Browser:
    """A browser for one test, with the pages that it opens in a folder. Use it as a context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: Queue[Any] = Queue()
        self._cleanup = ExitStack()
        sent = self._sent

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self._cleanup.callback(self._server.server_close)
        self._cleanup.callback(self._server.shutdown)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def put(self, page: str, script: str) -> Path:
        """Write a page, or replace it. Its script may call `send(value)`."""
        address = f"http://127.0.0.1:{self._server.server_port}"
        how = '{ method: "POST", mode: "no-cors", body: JSON.stringify(value) }'
        send = f'const send = (value) => fetch("{address}", {how});'
        path, part = self._folder / "opened.html", self._folder / "part"
        part.write_text(f"{page}<script>{send}\n{script}</script>", encoding="utf-8")
        return part.replace(path)

    def open(self, page: str, script: str) -> None:
        """Write a page, and open it."""
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
            f"--user-data-dir={self._folder / 'profile'}",
        )
        argv = [str(CHROMIUM), *options, self.put(page, script).as_uri()]
        process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True)
        self._cleanup.callback(process.wait)
        self._cleanup.callback(os.killpg, process.pid, signal.SIGKILL)

    def sent(self, timeout_s: float = 60) -> Any:
        """The next value that a page sends. Raises Empty after a time."""
        return self._sent.get(timeout=timeout_s)


def dom_of(page: str, folder: Path) -> str:
    """A page with its visible charts drawn."""
    with Browser(folder) as browser:
        browser.open(page, DRAWN)
        return str(browser.sent())


def unmarked(page: str) -> str:
    """A page without the marks of explained terms, which stand within its sentences."""
    return re.sub(r"</?abbr[^>]*>", "", page)
