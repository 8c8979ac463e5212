"""`arbormax serve`: refused options and the number of workers."""

import socket
import sys

import pytest


@pytest.fixture
def used_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_in_use_is_reported(refused, model, used_port):
    assert f"port {used_port}: address already in use" in refused("serve", model, "--port", used_port)


def test_an_address_of_another_machine_is_reported(refused, model):
    assert "cannot listen on 203.0.113.7" in refused("serve", model, "--host", "203.0.113.7", "--port", "0")


def test_a_folder_without_a_model_is_reported(refused, tmp_path):
    for workers in ("1", "2"):
        message = refused("serve", tmp_path / "nothing", "--port", "0", "--workers", workers)
        assert "is not a model" in message
        assert message.count("\n") == 1


def test_contradictory_settings_are_reported_without_secrets(refused, model):
    assert "never fits into a queue" in refused("serve", model, "--queue", "10", "--max-texts", "20")
    message = refused("serve", model, "--api-key", "short")
    assert "--api-key: " in message
    assert "short" not in message
    message = refused("serve", model, "--log-level", "warn")
    assert "--log-level: " in message
    assert "did you mean 'warning'" in message


def test_a_missing_package_is_reported_with_its_extra(refused, model, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("arbormax.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "arbormax[serve]" in refused("serve", model)


@pytest.mark.parametrize(
    ("cores", "options", "workers"),
    [(1, (), 1), (2, (), 2), (16, (), 4), (2, ("--threads", 2), 1), (2, ("--workers", 3), 3), (8, ("--threads", 4), 2)],
)
def test_the_default_is_one_worker_per_core_and_at_most_four(run, model, monkeypatch, cores, options, workers):
    found = []
    monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
    monkeypatch.setattr("arbormax.serve.run", lambda *_, **options: found.append(options["workers"]))
    assert run("serve", model, "--device", "cpu", *options).code == 0
    assert found == [workers]
