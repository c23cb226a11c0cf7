"""On Ray as on this machine: same bytes, same mistakes."""

import hashlib
import operator
import os
import subprocess
import sys
import weakref

import numpy as np
import pyarrow as pa
import pytest

from distillkit import pipeline
from distillkit.data.readers import source_files
from distillkit.data.tables import write_table
from distillkit.data.workers import each
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig, LabelConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster():
    import ray

    ray.init(
        address="local",
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    yield
    ray.shutdown()


def digest(path):
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_results_come_in_order_and_an_input_error_comes_through(capfd):
    assert list(each(operator.neg, [3, 1, 2], engine="ray")) == [-3, -1, -2]
    assert list(each(operator.neg, [3, 1, 2], engine="ray", workers=2, holds_model=True)) == [
        -3,
        -1,
        -2,
    ]
    assert "max_restarts" not in capfd.readouterr().err  # Ray warns of arguments that may be gone
    assert list(each(operator.neg, [], engine="ray", holds_model=True)) == []  # all is done
    with pytest.raises(InputError, match=r"nowhere\.tsv: no such file; expected"):
        list(each(source_files, ["nowhere.tsv"], engine="ray"))


class Large:
    """Arrays of 8 MB, of which it counts those that are looked up and not freed."""

    def __init__(self):
        self.alive, self.most = 0, 0

    def __len__(self):
        return 40

    def __getitem__(self, number):
        item = np.full(10**6, float(number))
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(item, self.free)
        return item

    def free(self):
        self.alive -= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_model_works_on_is_not_held_by_the_driver(workers):
    items = Large()
    found = list(each(np.min, items, engine="ray", workers=workers, holds_model=True))
    assert found == list(range(40))
    assert items.most <= 2


def test_a_worker_that_dies_is_one_line():
    with pytest.raises(InputError, match="a worker process died"):
        list(each(os._exit, [1, 1], engine="ray", workers=1, holds_model=True))


def test_the_private_cluster_of_another_command_is_not_joined():
    code = """
import ray
from distillkit.data.workers import each
assert list(each(abs, [-1, 2], engine="ray")) == [1, 2]
print(ray.get_runtime_context().gcs_address)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    import ray

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in ("", ray.get_runtime_context().gcs_address)


def test_more_actors_than_may_be_are_refused_and_not_waited_for():
    with pytest.raises(
        InputError, match="4 asked of a Ray cluster of 3 CPUs and 0 GPUs; expected 1 to 3"
    ):
        list(each(operator.neg, list(range(9)), engine="ray", workers=4, holds_model=True))


def test_augment_and_label_write_the_bytes_of_the_local_engine(
    tmp_path, classifier_folder, monkeypatch
):
    monkeypatch.setattr("distillkit.augment.layout.BLOCK_ROWS", 64)
    folder = tmp_path / "source"
    folder.mkdir()
    words = ["good", "bad", "film", "a", "the", "plot", "very"]
    for part in range(2):
        texts = [
            " ".join(words[(i * k + part) % 7] for k in range(1, 2 + i % 5)) for i in range(120)
        ]
        write_table(pa.table({"text": texts}), folder / f"part-{part}.parquet")
    config, label = (
        AugmentConfig(tagger="none", n_iter=5, memory_mb=1),
        LabelConfig(shard_rows=100, precision="fp32"),
    )
    for engine in ("local", "ray"):
        transfer, store = tmp_path / f"{engine}.parquet", tmp_path / engine
        report = pipeline.augment(str(folder), transfer, config, engine=engine, workers=2)
        summary = pipeline.label(
            str(transfer), store, str(classifier_folder), label, engine=engine, workers=2
        )
        assert summary["labelled_now"] == report["rows"] > 300
    assert digest(tmp_path / "ray.parquet") == digest(tmp_path / "local.parquet")
    assert len(digest(tmp_path / "ray")) > 4
    assert digest(tmp_path / "ray") == digest(tmp_path / "local")
