"""What holds for every strategy that shares out the model itself."""

import torch
from transformers import AutoModelForSequenceClassification

from distillkit.training.inference import predict_logits
from tests.training.launch import losses
from tests.training.worker import rows


def assert_same(found, expected, losses_within=1e-5, weights_within=1e-5):
    """Several processes computed what one did, pass by pass and in the end, and left the same ordinary model."""
    seen, right = losses(found), losses(expected)
    assert len(seen) == len(right) > 0
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(right), atol=losses_within, rtol=0)
    for process in found:
        assert process["best_epoch"] == expected[0]["best_epoch"]
        epochs = [
            torch.tensor([list(epoch.values()) for epoch in run["history"]])
            for run in (process, expected[0])
        ]
        torch.testing.assert_close(*epochs, atol=losses_within, rtol=0)
        assert process["ordinary"]
        assert process["weights"].keys() == expected[0]["weights"].keys()
        for name, tensor in process["weights"].items():
            torch.testing.assert_close(
                tensor, expected[0]["weights"][name], atol=weights_within, rtol=0
            )
        logits = (torch.tensor(run["logits"]) for run in (process, expected[0]))
        torch.testing.assert_close(*logits, atol=losses_within, rtol=0)
    assert_equal(found[0]["weights"], found[1]["weights"])


def assert_equal(first, second):
    """Two sets of weights are the same to the last bit."""
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def assert_loads(folder, found):
    """What was saved answers as what was trained."""
    logits = predict_logits(
        AutoModelForSequenceClassification.from_pretrained(folder), rows(24, seed=1)
    )
    torch.testing.assert_close(logits, torch.tensor(found[0]["logits"]), atol=1e-6, rtol=0)


def assert_goes_on(stopped, resumed, never_stopped):
    """Fresh processes ended where those that were never stopped did, to the last bit; an epoch's loss is summed up in another order."""
    assert all("interrupted, saved at step 20" in process["error"] for process in stopped)
    assert len(losses(resumed)) == len(losses(never_stopped)) - 20
    for process, expected in zip(resumed, never_stopped, strict=True):
        assert_equal(process["weights"], expected["weights"])
        epochs = [
            torch.tensor([list(epoch.values()) for epoch in run["history"]])
            for run in (process, expected)
        ]
        torch.testing.assert_close(*epochs, atol=1e-6, rtol=0)
