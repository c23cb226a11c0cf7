"""The search: a student's settings over a run's logits, accuracy against milliseconds and megabytes; a file each for space, study and front."""
