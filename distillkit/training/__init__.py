"""The training loop, its precision, and inference: shared by teacher and student."""
