"""A headless Chromium that tests drive over its DevTools pipe: pages, clicks, screenshots, console errors."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "there is no Chromium; `make browser` installs it from Debian"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")


class Chromium:
    """A browser process. DevTools messages are JSON that ends in a zero byte, over its files 3 and 4."""

    def __init__(self, folder: str) -> None:
        assert PROGRAM is not None
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        given = ["/bin/bash", "-c", command, PROGRAM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            given, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._held, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._to)
        os.close(self._from)

    def send(self, method: str, session: str = "", **params: object) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            got = self._read()
            if got.get("id") == self._number:
                assert "error" not in got, got
                return got["result"]
            self.events.append(got)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            more = os.read(self._from, 1 << 20)
            assert more, "Chromium has closed its pipe"
            self._held += more
        message, _, self._held = self._held.partition(b"\0")
        return json.loads(message)


class Tab:
    """A page at a width, light or dark. ``problems``: its errors and warnings, and what it tried to load."""

    def __init__(self, browser: Chromium, file: Path, width: int, dark: bool) -> None:
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._browser = browser
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._send("Page.navigate", url=file.as_uri())
        loaded = "document.readyState === 'complete' ? done() : addEventListener('load', done)"
        self.value(f"new Promise(done => {loaded})")
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def _send(self, method: str, **params: object) -> dict[str, Any]:
        return self._browser.send(method, self._session, **params)

    def value(self, script: str) -> Any:
        """The value of an expression in the page."""
        got = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Press the mouse on the first such element, at a part of its width and height."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x, b.y, b.width, b.height]; })()"
        )
        at = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    @property
    def problems(self) -> list[str]:
        found = []
        for event in self._browser.events:
            params = event.get("params", {})
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(str(params["entry"]))
            elif event["method"] == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:")) or (
                    url.startswith("file:") and params["type"] != "Document"
                ):
                    found.append(f"loads {url}")
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        got = self._send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(got["data"]))


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Chromium(folder) as browser:
        yield browser
