"""Both user interfaces on one project's data: Dagster's and MLflow's, each on a free port, ended as one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from features.errors import SettingsError

HOST = "127.0.0.1"
PORTS_TRIED = 50
READY_S, POLL_S, GRACE_S = 180.0, 0.25, 10.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server to start: its command and where it answers. `log`: what it prints."""

    name: str
    command: tuple[str, ...]
    url: str
    log: Path


def free_port(wanted: int, *, taken: Sequence[int] = ()) -> int:
    """The first port from `wanted` on that nobody listens on.

    Raises SettingsError if the next 50 are all taken.
    """
    for port in range(wanted, min(wanted + PORTS_TRIED, 65_536)):
        if port in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise SettingsError("a port must be free", value=wanted, hint="name another one")


def servers(
    *, root: Path, settings: Path, mlflow_uri: str, artifacts: Path, logs: Path, dagster_port: int, mlflow_port: int
) -> tuple[list[Server], dict[str, str]]:
    """Dagster and (unless it is a server elsewhere already) MLflow, and the environment that they need."""
    dagster_at = free_port(dagster_port)
    found = [
        Server(
            "Dagster",
            (sys.executable, "-m", "dagster", "dev", "-h", HOST, "-p", str(dagster_at)),
            f"http://{HOST}:{dagster_at}",
            logs / "dagster.log",
        )
    ]
    if mlflow_uri.startswith("sqlite:"):
        at = free_port(mlflow_port, taken=[dagster_at])
        store = ("--backend-store-uri", mlflow_uri, "--artifacts-destination", str(artifacts))
        where = ("--host", HOST, "--port", str(at), "--workers", "1")
        command = (sys.executable, "-m", "mlflow", "server", *where, *store)
        found.append(Server("MLflow", command, f"http://{HOST}:{at}", logs / "mlflow.log"))
    environment = {"DAGSTER_HOME": str(root), "ROUTECAL_SETTINGS": str(settings), "MLFLOW_TRACKING_URI": mlflow_uri}
    return found, environment


def serve(
    wanted: Sequence[Server], environment: Mapping[str, str], *, root: Path, stop: threading.Event,
    say: Callable[[str], None],
) -> int:  # fmt: skip
    """Start the servers, say where each answers, and end them all when `stop` is set or one of them ends.

    Returns 0 if it was stopped, 1 if a server ended by itself or was not ready in time.
    """
    running: list[subprocess.Popen[bytes]] = []
    waiting = list(wanted)
    try:
        for server in wanted:
            server.log.parent.mkdir(parents=True, exist_ok=True)
            with server.log.open("wb") as log:
                # Its own session: Ctrl-C reaches us alone, and we end the tree in order.
                running.append(
                    subprocess.Popen(
                        server.command, cwd=root, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                        stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    )
                )  # fmt: skip
            say(f"{server.name} starts, its log is {server.log}")
        waited_s = 0.0
        while not stop.is_set():
            for server, process in zip(wanted, running, strict=True):
                if process.poll() is not None:
                    say(f"{server.name} ended by itself ({process.returncode}); its log is {server.log}")
                    return 1
            for server in [s for s in waiting if _answers(s.url)]:
                waiting.remove(server)
                say(f"{server.name}: {server.url}")
                if not waiting:
                    say("both end with Ctrl-C" if len(wanted) > 1 else "it ends with Ctrl-C")
            if waiting and waited_s > READY_S:
                say(f"not ready after {READY_S:.0f} s: {', '.join(server.name for server in waiting)}")
                return 1
            stop.wait(POLL_S)
            waited_s += POLL_S
        return 0
    finally:
        end_trees([process.pid for process in running])
        for process in running:
            process.wait()


def end_trees(pids: Sequence[int]) -> None:
    """End processes and all that they started: a request first, after a grace period by force."""
    import psutil

    whole: list[psutil.Process] = []
    for pid in pids:
        try:
            parent = psutil.Process(pid)
            whole += [*parent.children(recursive=True), parent]
        except psutil.NoSuchProcess:
            continue
    for process in whole:
        _send(process, psutil.Process.terminate)
    _, alive = psutil.wait_procs(whole, timeout=GRACE_S)
    for process in alive:
        # What it started while it was ending goes with it.
        for child in _children(process):
            _send(child, psutil.Process.kill)
        _send(process, psutil.Process.kill)
    psutil.wait_procs(alive, timeout=GRACE_S)


def _children(process: object) -> list[object]:
    import psutil

    try:
        return list(process.children(recursive=True)) if isinstance(process, psutil.Process) else []
    except psutil.NoSuchProcess:
        return []


def _send(process: object, signal: Callable[..., None]) -> None:
    import psutil

    try:
        signal(process)
    except psutil.NoSuchProcess:
        return


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1.0):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
