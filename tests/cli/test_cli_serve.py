"""`arbormax serve`: what it refuses before it serves."""

import socket
import sys

import pytest


@pytest.fixture
def taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_in_use_is_told(refused, model, taken):
    told = refused("serve", model, "--port", taken)
    assert f"port {taken}: address already in use" in told


def test_an_address_of_another_machine_is_told(refused, model):
    assert "cannot listen on 203.0.113.7" in refused("serve", model, "--host", "203.0.113.7", "--port", "0")


def test_what_is_not_a_model_is_told(refused, tmp_path):
    assert "is not a model" in refused("serve", tmp_path / "nothing")


def test_settings_that_cannot_work_are_told_without_secrets(refused, model):
    assert "never fits a queue" in refused("serve", model, "--queue", "10", "--max-texts", "20")
    told = refused("serve", model, "--api-key", "short")
    assert "--api-key" in told
    assert "short" not in told.replace("shorter", "")
    assert "did you mean 'warning'" in refused("serve", model, "--log-level", "warn")


def test_without_its_packages_the_extra_is_named(refused, model, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("arbormax.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "arbormax[serve]" in refused("serve", model)
