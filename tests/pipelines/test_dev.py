"""The development servers: free ports, and no process is left behind."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from features.errors import SettingsError
from pipelines.dev import Server, free_port, serve, servers

# A server with a child of its own; neither listens to the polite request to end.
STUBBORN = """
import http.server, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
print("started", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def a_server(tmp_path: Path, code: str, port: int, name: str = "one") -> Server:
    return Server(name, (sys.executable, "-c", code, str(port)), f"http://127.0.0.1:{port}", tmp_path / f"{name}.log")


def children() -> set[psutil.Process]:
    """Everything that this process started and that still runs; other tests of the process may have left trackers."""
    return {p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        taken = held.getsockname()[1]
        assert taken < free_port(taken) < taken + 50
    with pytest.raises(SettingsError, match="must be free"):
        free_port(65_536)


def test_the_whole_tree_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.dev.GRACE_S", 0.5)
    stop, said = threading.Event(), []
    before = children()
    started: list[psutil.Process] = []

    def hear(line: str) -> None:
        said.append(line)
        if line.endswith("Ctrl-C"):
            started.extend(children() - before)
            stop.set()

    server = a_server(tmp_path, STUBBORN, free_port(20_000))
    assert serve([server], {}, root=tmp_path, stop=stop, say=hear) == 0
    assert f"one: {server.url}" in said
    assert len(started) == 2
    until_s = time.monotonic() + 5
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in started) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_one_that_dies_ends_the_other(tmp_path: Path) -> None:
    said: list[str] = []
    before = children()
    port = free_port(20_100)
    lives = a_server(tmp_path, "import time; time.sleep(600)", port, "lives")
    dies = a_server(tmp_path, "raise SystemExit(7)", free_port(port + 1), "dies")
    assert serve([lives, dies], {}, root=tmp_path, stop=threading.Event(), say=said.append) == 1
    assert any("dies ended by itself (7)" in line for line in said)
    assert not children() - before


def test_a_remote_tracking_server_is_not_started_again(tmp_path: Path) -> None:
    def names(uri: str) -> list[str]:
        found, environment = servers(
            root=tmp_path, settings=tmp_path / "routecal.toml", mlflow_uri=uri, artifacts=tmp_path, logs=tmp_path,
            dagster_port=3000, mlflow_port=3000,
        )  # fmt: skip
        assert environment["ROUTECAL_SETTINGS"].endswith("routecal.toml")
        assert len({server.url for server in found}) == len(found)
        return [server.name for server in found]

    assert names(f"sqlite:///{tmp_path}/mlflow.db") == ["Dagster", "MLflow"]
    assert names("http://127.0.0.1:5000") == ["Dagster"]
