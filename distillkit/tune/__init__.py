"""`distillkit tune`: a search over a student's settings on a run's logits."""
