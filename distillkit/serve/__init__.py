"""A bundle's answers over HTTP, without torch: `pip install 'distillkit[serve]'`."""
