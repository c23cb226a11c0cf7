import pytest
import torch

from distillkit.data.batches import Encoded
from distillkit.recipe import LoaderConfig
from distillkit.training.feed import Feed, fits_beside, lives_on_device
from tests.training.test_loop import rows

CPU = torch.device("cpu")


@pytest.mark.parametrize("where", ["device", "host"])
def test_batches_come_as_asked_for_epoch_after_epoch(where):
    data = rows(11)
    feed = Feed(data, CPU, LoaderConfig(rows=where))
    for order in ([[3, 1], [0], [10, 9, 8, 2]], [[5], [3, 4]], []):
        batches = [torch.tensor(batch) for batch in order]
        found = list(feed(batches))
        assert [numbers.tolist() for numbers, _ in found] == order
        for numbers, inputs in found:
            expected = data.batch(numbers)
            assert inputs.keys() == expected.keys()
            assert all(torch.equal(inputs[name], expected[name]) for name in inputs)


def test_rows_live_on_a_gpu_where_they_take_a_quarter_of_it_at_most(monkeypatch):
    gpu, data = (
        torch.device("cuda"),
        Encoded(torch.zeros(100, dtype=torch.int32), None, torch.arange(0, 101, 10), 0),
    )
    size = 400 + 11 * 8
    for free, expected in ((4 * size, True), (4 * size - 4, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 10 * free))
        assert lives_on_device(data, gpu, LoaderConfig()) is expected
        assert fits_beside(size, gpu) is expected
    assert lives_on_device(data, gpu, LoaderConfig(rows="device"))
    assert not lives_on_device(data, CPU, LoaderConfig(rows="host"))
    assert lives_on_device(data, CPU, LoaderConfig())
