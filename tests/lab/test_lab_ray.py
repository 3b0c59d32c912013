"""Sweeps on a Ray cluster: two real nodes on this machine, one of which is lost in the middle."""

import os
import time

import pytest
from lab_helpers import command, kinds, results, work
from refusals import refused

from symloss.lab.events import Event
from symloss.lab.on_ray import Resources, run_on_ray
from symloss.runs.run_folder import RunFolder

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray warns of what is none of ours
LOSSES = ("ce", "gce", "mae", "sgce", "sce", "unhinged")


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    here = os.path.dirname(__file__)
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # A node that is lost is noticed within two seconds.
    monkeypatch.setenv("RAY_health_check_initial_delay_ms", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "3")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    found = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000},
    )
    yield found
    ray.shutdown()
    found.shutdown()


def test_a_node_that_dies_costs_no_cell(cluster, tmp_path):
    node = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
    cluster.wait_for_nodes()
    # Long enough that the node dies while it trains.
    works = [work(tmp_path, loss, epochs=60, subset=None) for loss in LOSSES]
    events: list[Event] = []
    for event in run_on_ray(works, cluster.address, Resources()):
        events.append(event)
        if event.kind == "finished" and node is not None:
            _wait_for_two_in_training(works)  # each node has one of them
            cluster.remove_node(node, allow_graceful=False)
            node = None
    assert kinds(events) == {w.name: "finished" for w in works}
    assert sum(event.kind == "finished" for event in events) == len(works)
    assert set(results(tmp_path)) == {w.folder.name for w in works}
    for found in works:
        epochs = [line.epoch for line in _metrics(found)]
        assert epochs == list(range(1, 61)), "every epoch once, whoever trained it"


def _wait_for_two_in_training(works):
    deadline = time.monotonic() + 100
    while sum(bool(_metrics(found)) and found.result() is None for found in works) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _metrics(found):
    return RunFolder(found.folder).metrics()


def test_the_command_trains_on_a_cluster_and_continues_past_failures(cluster, tmp_path):
    process = command(
        "reproduce", "digits", "--profile", "mini", "--losses", "ce", "--noise", "clean,sym:0.4", "--seeds", 1,
        "--ray", cluster.address, "--runs", tmp_path,
    )  # fmt: skip
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "to be shared by the cluster" in err
    assert len(results(tmp_path)) == 2
    assert "mini (reduced" in out
    works = [work(tmp_path, "gce", model="nowhere:nothing"), work(tmp_path, "mae")]
    events = list(run_on_ray(works, cluster.address, Resources()))
    assert kinds(events) == {"gce seed 0": "failed", "mae seed 0": "finished"}
    (reason,) = [event.reason for event in events if event.kind == "failed"]
    assert "nowhere" in reason
    assert "\n" not in reason


def test_an_address_without_a_cluster_is_refused_in_one_sentence(tmp_path):
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"):
        with refused(ValueError, "--ray must be the address of a running cluster", address):
            list(run_on_ray([work(tmp_path)], address, Resources()))
