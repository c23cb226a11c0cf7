"""What the commands import, imported once."""

import onnxruntime
import onnxscript
import torch._dynamo
import torch.distributed.launcher.api
import torch.onnx._internal.exporter._core

import distillkit.cli
import distillkit.compress.run
import distillkit.pipeline
import distillkit.runs
