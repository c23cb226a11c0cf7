"""Answers over HTTP, of a bundle: JSON in and out. `pip install 'distillkit[serve]'` has what it needs, which is neither torch nor transformers."""
