"""What the commands import: imported once, by the process that theirs are forked from."""

from importlib import import_module

for name in (
    "distillkit.cli",
    "distillkit.compress.run",
    "distillkit.runs",
    "onnxruntime",
    "onnxscript",
    "torch._dynamo",
    "torch.distributed.launcher.api",
    "torch.onnx._internal.exporter._core",
):
    import_module(name)
