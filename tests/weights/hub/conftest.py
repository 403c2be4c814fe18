"""A hub on this machine for each test, with empty caches; any other address is out of reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.weights.hub.server import HubServer, Repository
from tests.weights.hub.tiny_model import REPO, use_endpoint, whole_model


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def local(host: object, *rest: object, **more: object) -> object:
        assert host in ("127.0.0.1", b"127.0.0.1"), f"traffic to {host!r}"
        return look_up(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", local)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as server:
        server.repositories[REPO] = Repository(whole_model())
        use_endpoint(monkeypatch, server.endpoint, tmp_path)
        yield server
