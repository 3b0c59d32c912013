"""Sweeps on a Ray cluster: two real nodes on this machine, one of which is lost in the middle."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from run_helpers import kinds, results, work
from sklearn.base import clone
from sklearn.datasets import load_iris

from symloss.experiments.ray import joblib_on_ray, run_on_ray
from symloss.experiments.run import Event
from symloss.fit import RobustClassifier
from symloss.training.run_folder import Busy, RunFolder

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray warns of what is none of ours


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    # A node that is lost is noticed within two seconds. By itself Ray lets tests on other cores go before.
    health = {"initial_delay_ms": 0, "period_ms": 500, "failure_threshold": 3}
    of_ray = {"USAGE_STATS_ENABLED": 0, "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": 0, "worker_niceness": 0}
    of_ray |= {f"health_check_{name}": value for name, value in health.items()}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", os.path.dirname(__file__), prepend=os.pathsep)
        environment.setenv("GO_ON", str(tmp_path_factory.mktemp("cluster") / "go-on"))
        for name, value in of_ray.items():
            environment.setenv(f"RAY_{name}", str(value))
        head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}
        found = Cluster(initialize_head=True, head_node_args=head)
        yield found
        ray.shutdown()
        found.shutdown()


def test_the_command_trains_on_a_cluster(cluster, tmp_path, run_command):
    done = run_command(
        "reproduce", "digits", "--profile", "mini", "--losses", "ce", "--noise", "clean,sym:0.4", "--seeds", 1,
        "--ray", cluster.address, "--runs", tmp_path, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "to be shared by the cluster" in done.stderr
    assert len(results(tmp_path)) == 2
    assert "mini (reduced" in done.stdout


def test_a_fit_on_a_cluster_is_the_same_as_alone(cluster):
    features, labels = load_iris(return_X_y=True)
    model = RobustClassifier(model="mlp:hidden=4", losses=["mae"], learners=["network", "k-nn"], budget=2, rounds=1)
    alone = clone(model).fit(features, labels)
    with joblib_on_ray(cluster.address):
        shared = clone(model).set_params(n_jobs=-1).fit(features, labels)
    np.testing.assert_array_equal(alone.predict_proba(features), shared.predict_proba(features))
    assert alone.plan_ is not None


def test_neither_a_failure_nor_a_node_that_dies_costs_another_cell(cluster, tmp_path):
    node = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
    cluster.wait_for_nodes()
    # After an epoch they wait, so that the node dies while it trains.
    good = [work(tmp_path, loss, epochs=3, batch=60, model="fatal_model:waits") for loss in ("ce", "mae", "sgce")]
    events: list[Event] = []
    for event in run_on_ray([work(tmp_path, "gce", model="nowhere:nothing"), *good], cluster.address):
        events.append(event)
        if event.kind == "failed" and node is not None:
            wait_until_trained(good, 2)  # each node has one of them
            cluster.remove_node(node, allow_graceful=False)
            node = None
            wait_until_trained(good, 1)
            Path(os.environ["GO_ON"]).touch()
    assert kinds(events) == {"gce seed 0": "failed"} | {w.name: "finished" for w in good}
    assert sum(event.kind == "finished" for event in events) == len(good)
    assert set(results(tmp_path)) == {w.folder.name for w in good}
    for found in good:
        epochs = [line.epoch for line in RunFolder(found.folder).metrics()]
        assert epochs == [1, 2, 3], "every epoch once, whoever trained it"
    (reason,) = [event.reason for event in events if event.kind == "failed"]
    assert "nowhere" in reason
    assert "\n" not in reason


def wait_until_trained(works, count):
    """Until so many have ended an epoch, and a process that lives has them to itself."""
    deadline = time.monotonic() + 100
    while sum(each.last_epoch() > 0 and _is_busy(RunFolder(each.folder)) for each in works) != count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_busy(folder):
    try:
        with folder.alone():
            return False
    except Busy:
        return True


def test_an_address_without_a_cluster_is_refused_in_one_sentence(tmp_path):
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"):
        with refused(ValueError, "`ray` must be the address of a running cluster", address):
            list(run_on_ray([work(tmp_path)], address))
