import sys
from pathlib import Path

import distillkit
from distillkit.loss import DistillationLoss
from distillkit.pipeline import StudentJob, train_student
from distillkit.recipe import EmbeddingConfig, LossConfig, StudentConfig, TrainingConfig

PACKAGE = str(Path(distillkit.__file__).parent)
SMALL = StudentConfig(hidden_size=4, head_size=4, embeddings=EmbeddingConfig("random", 4))


def job(folder, table):
    rows = "".join(f"{row['text']}\t{row['label']}\n" for row in table.to_pylist())
    (folder / "train.tsv").write_text("text\tlabel\n" + rows)
    source = str(folder / "train.tsv")
    how = {"loss": LossConfig(alpha=1.0), "training": TrainingConfig(epochs=1)}
    return StudentJob(source, source, folder / "student", SMALL, **how)


def test_six_frames_of_ours_lead_from_train_student_to_the_loss(tmp_path, dev_table, monkeypatch):
    """Whoever debugs a training reads this stack: torch's frames aside, it stays short."""
    stacks, forward = [], DistillationLoss.forward

    def noted(self, *args):
        frame, names = sys._getframe(1), ["forward"]
        while frame is not None:
            code = frame.f_code
            names += [code.co_name] if code.co_filename.startswith(PACKAGE) else []
            frame = frame.f_back
        stacks.append(names)
        return forward(self, *args)

    monkeypatch.setattr(DistillationLoss, "forward", noted)
    train_student(job(tmp_path, dev_table))
    assert stacks[0] == ["forward", "loss", "learn", "step", "fit", "train_student"]


def test_the_old_call_of_train_student_works_and_says_the_new_one(tmp_path, dev_table, capsys):
    new = job(tmp_path, dev_table)
    expected = train_student(new)
    found = train_student(
        new.transfer_set,
        new.dev,
        new.output,
        new.student,
        loss=new.loss,
        training=new.training,
        logits=None,
    )
    assert found == expected
    assert "train_student(StudentJob(SET, ...))" in capsys.readouterr().err
