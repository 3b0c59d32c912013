"""The benchmark of the training loop runs; what comes out is not judged."""

from training_speed import measure_training, speed


def test_the_loop_is_timed_against_its_bare_step(tmp_path):
    """On random images where CIFAR-10 is missing."""
    rows = list(measure_training("mae", 2, 2, "cnn8:width=0.05", tmp_path))
    assert len(rows) == 2
    assert rows[0]["data"] == "random images like CIFAR-10"
    assert speed(rows) > 0
    assert speed([{"bare": 9.0, "loop": 10.0}]) == 0.9
