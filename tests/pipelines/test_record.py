"""The recorder of polls, against engines that answer, refuse, stall and die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from features.errors import SettingsError
from features.ingest import ingest
from features.lake import Lake
from pipelines.record import MAX_BODY_BYTES, METRICS, Recording, in_order, poll, record

LOADS = {
    "timestamp": "2026-11-01T00:00:00Z",
    "loads": [{"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 1, "num_used_tokens": 512,
               "num_total_tokens": 600, "max_total_num_tokens": 4096, "disaggregation": {"mode": "decode"}}],
}  # fmt: skip
ROOT = Path(__file__).parents[2]


SCRAPE = (
    b"# HELP vllm:num_requests_running Requests in the batch.\n"
    b"# TYPE vllm:num_requests_running gauge\n"
    b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
    b'vllm:num_requests_running{engine="1",model_name="m"} 4.0\n'
)
WRONG = {"/text": b"hello", "/deep": b"[" * 100_000, "/nan": b'{"loads": [{"dp_rank": NaN}]}'}
"""Answers with status 200 that are no JSON."""


class Engine(BaseHTTPRequestHandler):
    """Answers by path: `/v1/loads` as SGLang does, the others each in their own wrong way."""

    def do_GET(self) -> None:
        status, body = 200, json.dumps(LOADS).encode()
        if self.path.startswith("/busy"):
            status, body = 503, b"overloaded"
        elif self.path in WRONG:
            body = WRONG[self.path]
        elif self.path == "/drip":
            body = b" " * 30
        elif self.path == "/metrics":
            body = SCRAPE
        elif self.path == "/large":
            body = b"a 1\n" * (MAX_BODY_BYTES // 4 + 1)
        elif self.path == "/latin":
            body = b'up{name="\xe9"} 1\n'
        elif self.path == "/odd":
            body = b'{"loads": [], "name": "\\ud800"}'
        elif self.path.startswith("/stall"):
            time.sleep(1.0)
        elif not self.path.startswith("/v1/loads?include=core"):
            status = 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/drip":
            for _ in range(30):
                self.wfile.write(b" ")
                time.sleep(0.1)
            return
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def dead() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_every_answer_is_a_line_of_the_same_form(engine: str, dead: str) -> None:
    wanted = {engine: 200, f"{engine}/busy": 503, f"{engine}/text": 200, f"{engine}/stall": 0, dead: 0}
    for target, status in wanted.items():
        line = poll(target, timeout_s=0.3, now_us=7)
        assert list(line) == ["polled_at_us", "target", "status", "body"]
        assert (line["polled_at_us"], line["target"], line["status"]) == (7, target, status)
        assert (line["body"] == LOADS) == (target == engine)
        assert target == engine or line["body"]["error"]


def test_a_dead_target_does_not_slow_the_others(engine: str, dead: str, tmp_path: Path) -> None:
    out = tmp_path / "polls" / "loads-{day}.jsonl"
    recording = Recording((engine, dead, f"{engine}/stall"), str(out), period_s=0.05, timeout_s=0.2, duration_s=0.8)
    tally = record(recording, now_s=time.time, stop=threading.Event())
    assert tally.ok[engine] >= 5
    assert tally.silent[dead] >= 5
    assert 1 <= tally.silent[f"{engine}/stall"] <= 5
    lines = [line for path in tally.files for line in lines_of(Path(path))]
    assert len(lines) == tally.polls
    report = ingest(Path(tally.files.pop()), format="auto", pool="p", lake=Lake(tmp_path / "lake"))
    assert report.format == "sglang-loads"
    assert report.accepted == tally.ok[engine]


def test_what_a_target_answers_never_ends_the_recording(engine: str, tmp_path: Path) -> None:
    for path in (*WRONG, "/odd"):
        out = tmp_path / f"{path[1:]}.jsonl"
        recording = Recording((engine + path,), str(out), period_s=0.05, duration_s=0.3)
        tally = record(recording, now_s=time.time, stop=threading.Event())
        assert tally.polls == len(lines_of(out)) >= 2
        assert tally.refused.total() == (0 if path == "/odd" else tally.polls)


def test_an_answer_that_drips_is_cut_off_at_the_timeout(engine: str) -> None:
    began_s = time.monotonic()
    line = poll(f"{engine}/drip", timeout_s=0.3, now_us=7)
    assert time.monotonic() - began_s < 1.5
    assert (line["status"], line["body"]) == (0, {"error": "timed out"})


def test_a_file_of_failed_polls_only_is_still_a_file_of_polls(engine: str, dead: str, tmp_path: Path) -> None:
    out = tmp_path / "loads.jsonl"
    targets = (dead, f"{engine}/busy", f"{engine}/text")
    tally = record(Recording(targets, str(out), duration_s=0.2), now_s=time.time, stop=threading.Event())
    report = ingest(out, format="auto", pool="p", lake=Lake(tmp_path / "lake"))
    assert report.format == "sglang-loads"
    assert (report.skipped, report.nothing_read) == (tally.polls, False)


def test_scrapes_are_lines_of_the_same_form_with_text(engine: str, dead: str) -> None:
    wanted = {
        engine: (200, SCRAPE.decode()), f"{engine}/busy": (503, "# error: "), f"{engine}/stall": (0, "# error: "),
        f"{engine}/text": (200, "# error: not in the Prometheus"), f"{engine}/latin": (200, "# error: not UTF-8"),
        f"{engine}/large": (200, "# error: more than 16 MiB"), dead: (0, "# error: "),
    }  # fmt: skip
    for target, (status, text) in wanted.items():
        line = poll(target, timeout_s=5.0 if target.endswith("large") else 0.5, now_us=7, what=METRICS)
        assert list(line) == ["polled_at_us", "target", "status", "body"]
        assert (line["polled_at_us"], line["target"], line["status"]) == (7, target, status)
        assert line["body"].startswith(text)
        assert "\n" not in line["body"] or target == engine


def test_recorded_scrapes_are_read(engine: str, dead: str, tmp_path: Path) -> None:
    out = tmp_path / "metrics.jsonl"
    recording = Recording((engine, dead, f"{engine}/busy"), str(out), period_s=0.1, duration_s=0.45, what=METRICS)
    tally = record(recording, now_s=time.time, stop=threading.Event())
    assert tally.ok[engine] >= 3
    assert tally.refused[f"{engine}/busy"] >= 3
    assert tally.silent[dead] >= 3
    report = ingest(out, format="auto", pool="p", lake=Lake(tmp_path / "lake"))
    assert report.format == "prometheus-polls"
    assert report.accepted == 2 * tally.ok.total()
    assert report.skipped_kinds["failed_poll"] == tally.polls - tally.ok.total()
    assert report.skipped_kinds["comment"] == 2 * tally.ok.total()


def test_a_file_of_failed_scrapes_only_is_still_one_of_scrapes(engine: str, dead: str, tmp_path: Path) -> None:
    out = tmp_path / "metrics.jsonl"
    recording = Recording((dead, f"{engine}/busy", f"{engine}/text"), str(out), duration_s=0.2, what=METRICS)
    tally = record(recording, now_s=time.time, stop=threading.Event())
    report = ingest(out, format="auto", pool="p", lake=Lake(tmp_path / "lake"))
    assert report.format == "prometheus-polls"
    assert (report.skipped, report.nothing_read) == (tally.polls, False)


def test_the_file_follows_the_utc_day(engine: str, tmp_path: Path) -> None:
    midnight_s, started_s = 1_793_664_000.0, time.monotonic()
    recording = Recording((engine,), str(tmp_path / "{day}.jsonl"), period_s=0.1, duration_s=0.6)
    record(recording, now_s=lambda: midnight_s - 0.3 + time.monotonic() - started_s, stop=threading.Event())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026-11-02.jsonl", "2026-11-03.jsonl"]


def test_stop_ends_it(engine: str, tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    tally = record(Recording((engine,), str(tmp_path / "a"), period_s=30.0), now_s=time.time, stop=stop)
    assert tally.polls == 1


@pytest.mark.parametrize("what", ["loads", "metrics"])
def test_ctrl_c_ends_the_command_with_whole_lines(what: str, engine: str, tmp_path: Path) -> None:
    out = tmp_path / "polls.jsonl"
    arguments = ["record", what, "--targets", engine, "--out", str(out), "--period", "0.05", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    waited_until_s = time.monotonic() + 60
    while not out.exists() and process.poll() is None and time.monotonic() < waited_until_s:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 0, stderr.decode()
    assert json.loads(stdout)["polls"] == json.loads(stdout)["ok"] == len(lines_of(out)) > 0


@pytest.mark.parametrize(
    ("targets", "rule"),
    [((), "must have targets"), (("10.0.0.1:30000",), "http URL"), (("file:///etc/passwd",), "http URL"),
     (("http://a:99999",), "http URL"), (("http://a:port",), "http URL"), (("http://[::1",), "http URL"),
     (("http://a", "http://a"), "named once")],
)  # fmt: skip
def test_targets_are_checked(targets: tuple[str, ...], rule: str) -> None:
    with pytest.raises(SettingsError, match=rule):
        Recording(targets, "x")


@pytest.mark.parametrize("name", ["period_s", "timeout_s", "duration_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_seconds_are_checked(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=name):
        Recording(("http://a",), "x", **{name: value})


def test_an_unwritable_file_is_an_error(engine: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    with pytest.raises(SettingsError, match="writable"):
        record(Recording((engine,), str(tmp_path / "taken" / "x")), now_s=time.time, stop=threading.Event())


def test_a_recording_is_of_something_known() -> None:
    with pytest.raises(SettingsError, match="loads or metrics"):
        Recording(("http://a",), "x", what="traces")


def test_targets_of_a_command_line() -> None:
    assert in_order(["http://a,http://b", "http://a", "http://c"]) == ("http://a", "http://b", "http://c")
