"""`detoklens explore` and `study.explore()`: what people type, see and end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from detoklens.explorer import explore
from detoklens.explorer.bundle import check_bundle
from detoklens.explorer.server import Server
from detoklens.questions.study import Study
from tests.command_line import refuse, run
from tests.layers import random_first_layer, random_layer, write_gpt2


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model without a tokenizer: quick to write."""
    return write_gpt2(tmp_path_factory.mktemp("models") / "small", random_first_layer(vocab_size=30, dtype="float32"))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "site"
    assert run("explore", model, "--export", folder).stdout == f"{folder}\n"
    return folder


@contextlib.contextmanager
def exploring(*arguments: object):
    """The command as a process of its own and the address that it prints; ended by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "detoklens", "explore", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"BROWSER": "false %s"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell's children ignore it
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def test_it_serves_a_model_until_control_c(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with exploring(model, "--no-open") as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        said = json.loads(fetched(f"{url}bundle.json"))
        assert said["model"]["vocab_size"] == 30
        assert b"<title>" in fetched(url)
        assert list(tmp_path.iterdir())
        until = time.monotonic() + 120  # the head cards come while the page is served
        while time.monotonic() < until:
            with contextlib.suppress(urllib.error.HTTPError):
                assert len(json.loads(fetched(f"{url}heads.json"))["rows"]) == 3
                break
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in stderr
        assert "press Ctrl-C to stop" in stderr
        assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_an_exported_folder_is_served_as_it_is(exported):
    with exploring(exported, "--no-open") as (process, url):
        assert fetched(f"{url}heads.json") == (exported / "heads.json").read_bytes()
        with exploring(exported, "--no-open") as (_, other):  # two at once
            assert other != url
            assert fetched(other) == fetched(url)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_an_export_is_whole(exported, model):
    said = check_bundle(exported)
    assert said["model"]["name"] == "small"
    assert not [file for file in exported.rglob("*") if file.is_file() and bytes(model.parent) in file.read_bytes()]
    assert not said["heads_pending"]
    assert (exported / "heads.json").is_file()
    assert (exported / "index.html").is_file()


def test_what_can_not_be_done_is_one_line(model, exported, tmp_path):
    with Server(exported) as taken:
        port = taken.server_port
        line = refuse("explore", model, "--port", port, "--no-open")
        assert line == f"detoklens: can't listen on port {port}: another program uses it; pass another port, or none"
    assert "pass 1 to 65535" in refuse("explore", exported, "--port", 70000)
    assert "--export does not serve" in refuse("explore", model, "--export", tmp_path / "out", "--port", 8000)
    assert "is an exported explorer" in refuse("explore", exported, "--export", tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    assert "contains other files and is not overwritten" in refuse("explore", model, "--export", tmp_path / "mine")
    assert not (tmp_path / "out").exists()


def test_an_older_explorer_says_what_to_do(exported, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    said = json.loads((exported / "bundle.json").read_text()) | {"format": 0, "detoklens": "0.0.9"}
    (old / "bundle.json").write_text(json.dumps(said))
    line = refuse("explore", old)
    assert "has format 0, written by detoklens '0.0.9'" in line
    assert line.endswith("export it again")


def test_a_port_is_taken_before_the_work_begins(exported, monkeypatch):
    monkeypatch.setattr(explore, "write_bundle", lambda *_given, **_options: pytest.fail("the work began"))
    study = Study(random_layer(vocab_size=30, dtype="float32"))
    with Server(exported) as taken, pytest.raises(Exception, match="another program uses it"):
        study.explore(taken.server_port)


def test_outside_a_notebook_a_study_opens_the_browser(monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(explore, "open_browser", opened.append)
    shown = Study(random_layer(vocab_size=30, dtype="float32")).explore()
    try:
        assert opened == [shown.url]
        assert repr(shown) == f"Explorer of random at {shown.url}; call close() to stop it"
        assert json.loads(fetched(f"{shown.url}bundle.json"))["model"]["name"] == "random"
    finally:
        shown.close()
    with pytest.raises(OSError, match="refused"):
        fetched(shown.url)


def test_in_a_notebook_it_is_the_cells_output(monkeypatch):
    monkeypatch.setattr(explore, "in_notebook", lambda: True)
    monkeypatch.setattr(explore, "open_browser", lambda _url: pytest.fail("the cell shows it"))
    shown = Study(random_layer(vocab_size=30, dtype="float32")).explore()
    shown.name = "<script>alert(1)</script>"
    try:
        html = shown._repr_html_()
        assert f'<iframe src="{shown.url}"' in html
        assert "<script>" not in html
        with urllib.request.urlopen(shown.url, timeout=30) as answer:
            assert "frame-ancestors" not in answer.headers["Content-Security-Policy"]
    finally:
        shown.close()


def test_in_colab_the_kernels_proxy_shows_it(monkeypatch):
    """IPython's display calls it in place of the HTML, whose frame Colab would strip."""
    from IPython.core.formatters import DisplayFormatter
    from IPython.core.interactiveshell import InteractiveShell

    asked = []
    output = SimpleNamespace(serve_kernel_port_as_iframe=lambda port, **look: asked.append((port, look)))
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace(output=output))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    monkeypatch.setattr(explore, "in_notebook", lambda: True)
    monkeypatch.setattr(explore, "open_browser", lambda _url: pytest.fail("the cell shows it"))
    shown = Study(random_layer(vocab_size=30, dtype="float32")).explore()
    try:
        formatter = DisplayFormatter(parent=InteractiveShell())
        assert formatter.format(shown) == ({}, {})
        assert asked == [(shown.port, {"height": "760"})]
        request = urllib.request.Request(f"{shown.url}bundle.json", headers={"Host": "abc-8000-colab.example"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.loads(answer.read())["model"]["name"] == "random"
    finally:
        shown.close()


def test_without_a_screen_no_browser_is_started(monkeypatch):
    monkeypatch.setattr(explore.webbrowser, "open", lambda _url: True)
    monkeypatch.setattr(explore.sys, "platform", "linux")
    for name in explore.SCREENS:
        monkeypatch.delenv(name, raising=False)
    assert not explore.open_browser("http://127.0.0.1:1/")
    monkeypatch.setenv("DISPLAY", ":0")
    assert explore.open_browser("http://127.0.0.1:1/")
