"""Why a student is not its teacher, and what to do first."""

from collections.abc import Mapping
from pathlib import Path

from distillkit.doctor.findings import Finding, percent
from distillkit.recipe.training import STUDENT_STEPS
from distillkit.training.checkpoints import training_log

NEAR = 0.05  # share of the teacher's variance that a student may miss on dev


def steps_of(student: Path) -> int:
    """Return how many optimizer steps a student was trained for, from its training's log."""
    return max((line["step"] for line in training_log(student)), default=0)


def gap_finding(found: Mapping[str, float], steps: int) -> Finding:
    """Say why a student is not its teacher, and what to do first.

    Args:
        found: From `Probe.gaps`: `train`, `dev`, and `variants` and `raw` where there were any.
        steps: Optimizer steps of its training.
    """
    dev, train, variants = found["dev"], found["train"], found.get("variants", 0.0)
    if steps < STUDENT_STEPS:
        why = f"it trained for {steps:,} steps only"
        do = f"train longer: --training.steps {max(STUDENT_STEPS, 2 * steps)}"
    elif train >= dev / 2:
        why = "it has not even learnt what it was shown"
        do = "take a larger student (hidden_size, layers, subwords), or more steps"
    elif variants >= 2 * train and variants >= dev:
        why = "it knows the training texts, but not their variants"
        do = "draw more of them: --augment.n-iter"
    else:
        why = "it knows the texts it was shown, but not others"
        do = "show it more text, of any domain: --data.unlabelled wordnet, or your own"
    shares = ", ".join(f"{percent(share)} on {name}" for name, share in found.items())
    seen = f"of the teacher's variance the student misses {shares}"
    metrics = {**{f"unexplained_{name}": share for name, share in found.items()}, "steps": steps}
    if dev < NEAR:
        return Finding("student-gap", "fine", seen, metrics=metrics)
    return Finding("student-gap", "warning", f"{seen}: {why}", do, metrics)
