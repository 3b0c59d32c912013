"""Learning rates against torch's own schedulers, over whole runs."""

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from torch.optim import lr_scheduler

from symloss.training.settings import Schedule

EPOCHS, STEPS, LR = 24, 7, 0.4


def torchs(make, every_step):
    """What a scheduler of torch's sets at each step of a run."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler, found = make(optimizer), []
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if every_step:
                scheduler.step()
        if not every_step:
            scheduler.step()
    return found


@in_turn(
    "text, make, every_step",
    [
        ("constant", lambda o: lr_scheduler.ConstantLR(o, factor=1.0), False),
        ("cosine", lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=EPOCHS), False),
        ("step:20", lambda o: lr_scheduler.StepLR(o, step_size=20, gamma=0.1), False),
        ("step:5,0.3", lambda o: lr_scheduler.StepLR(o, step_size=5, gamma=0.3), False),
        ("epochs:0.97", lambda o: lr_scheduler.ExponentialLR(o, gamma=0.97), False),
        ("exponential:0.1/50", lambda o: lr_scheduler.ExponentialLR(o, gamma=0.1 ** (1 / 50)), True),
    ],
)
def test_a_whole_run_is_as_with_torchs_scheduler(text, make, every_step):
    schedule = Schedule.parse(text)
    ours = [
        LR * schedule.factor(epoch=epoch, epochs=EPOCHS, step=epoch * STEPS + step)
        for epoch in range(EPOCHS)
        for step in range(STEPS)
    ]
    assert ours == pytest.approx(torchs(make, every_step), rel=1e-9)


@in_turn(
    "text",
    ["", "linear", "cosine:3", "constant:1", "step", "step:", "step:0", "step:x", "step:9,-1", "step:9,nan",
     "exponential:0.1", "exponential:/5", "exponential:0.1/0", "epochs", "epochs:0", "epochs:inf"],
)  # fmt: skip
def test_a_bad_schedule_is_refused_in_one_sentence(text):
    with refused(ValueError, "schedule must be", "cosine", f"got {text!r}"):
        Schedule.parse(text)
