"""Fast inference of trained or pretrained nets: equal features up to rounding.

BatchNorm is folded into the convolutions before it. On a CPU with the extra `onnx`, nets of inverted residuals run in
onnxruntime.
"""

from __future__ import annotations

import copy
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from maskcon.models.base import Backbone, flat, join_levels
from maskcon.models.heads import FrozenEncoder
from maskcon.models.mobilenet import InvertedResidualNet, SameConv2d
from maskcon.models.resnet import ResNet

OPSET, IR_VERSION = 18, 8  # of the graph: old ones, which any onnxruntime reads


def for_inference(backbone: Backbone, device: str | torch.device = "cpu", *, thaw: int = 0) -> Backbone:
    """Copy a backbone to a device for inference by the fastest engine there.

    Only our own nets are changed: in others, the order of layers is unknown.

    thaw: the value that will be passed to `Backbone.levels`.
    """
    fused: Backbone = copy.deepcopy(backbone).eval().requires_grad_(False)
    net = fused.backbone if isinstance(fused, FrozenEncoder) else fused
    if isinstance(net, ResNet | InvertedResidualNet):
        for module in list(net.modules()):
            _fold_children(module)
    fused.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if engine_of(net, device) == "onnxruntime":
        assert isinstance(net, InvertedResidualNet)
        compiled = CompiledNet(net, thaw)
        if not isinstance(fused, FrozenEncoder):
            return compiled
        fused.backbone = compiled
    return fused


def engine_of(backbone: Backbone, device: str | torch.device) -> str:
    """Return what runs a backbone in `for_inference`: "onnxruntime" or "torch"."""
    fits = isinstance(backbone, InvertedResidualNet) and torch.device(device).type == "cpu"
    installed = all(find_spec(name) for name in ("onnx", "onnxruntime"))
    return "onnxruntime" if fits and installed else "torch"


def _fold_children(module: nn.Module) -> None:
    """Fold each BatchNorm into the convolution registered directly before it."""
    for (conv_name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
            setattr(module, norm_name, nn.Identity())


class CompiledNet(Backbone):
    """A net of inverted residuals with folded BatchNorm, run by onnxruntime.

    It uses as many threads as torch had when it was built.
    """

    def __init__(self, net: InvertedResidualNet, thaw: int = 0) -> None:
        super().__init__()
        import onnxruntime

        self.name, self.in_channels = net.name, net.in_channels
        self.features, self.earlier_features = net.features, net.earlier_features
        cut = len(net.stages()) - thaw
        self._thaw, self._means_read = thaw, sum(number < cut for number in net.earlier_stages)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
        # no spinning: torch works between the calls
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(
            graph_of(net, thaw), sess_options=options, providers=["CPUExecutionProvider"]
        )

    def forward(self, images: Tensor) -> Tensor:
        return self._run(images)[0].flatten(1)

    def levels(self, images: Tensor, weight: float, thaw: int = 0) -> Tensor:
        if thaw != self._thaw:
            raise ValueError(f"this net was made for thaw={self._thaw}, not {thaw}")
        outputs = self._run(images)
        maps = [flat(outputs.pop())] if thaw else []
        means = [mean.flatten(1) for mean in outputs]
        read = [*means[1 : 1 + self._means_read], *maps] if thaw else []
        return torch.cat([join_levels(means, weight), *read], dim=1)

    def _run(self, images: Tensor) -> list[Tensor]:
        outputs = self._session.run(None, {"images": images.detach().float().contiguous().numpy()})
        return [torch.from_numpy(values) for values in outputs]


def graph_of(net: InvertedResidualNet, thaw: int = 0) -> bytes:
    """Return the ONNX graph of a folded net.

    Input: images [B, C, H, W]. Outputs: the means of the last map and of those of `earlier_stages`.

    thaw: if > 0, the map before the last `thaw` stages is the last output.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(value: Tensor) -> str:
        constants.append(numpy_helper.from_array(value.detach().cpu().numpy(), f"c{len(constants)}"))
        return str(constants[-1].name)

    def add(operation: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operation, inputs, [f"m{len(nodes)}"], **attributes))
        return f"m{len(nodes) - 1}"

    limits = [constant(torch.tensor(float(limit))) for limit in (0, 6)]

    def add_layer(layer: nn.Module, before: str) -> str:
        maps = before
        for module in layer.modules():
            if isinstance(module, nn.Conv2d):
                assert module.bias is not None  # what folding leaves
                weights = constant(module.weight.contiguous()), constant(module.bias)
                padding = (
                    {"auto_pad": "SAME_UPPER"}
                    if isinstance(module, SameConv2d)
                    else {"pads": [int(side) for side in module.padding] * 2}
                )
                maps = add(
                    "Conv", maps, *weights, strides=module.stride, group=module.groups,
                    kernel_shape=module.kernel_size, **padding,
                )  # fmt: skip
            elif isinstance(module, nn.ReLU6):
                maps = add("Clip", maps, *limits)
        return add("Add", before, maps) if getattr(layer, "adds_input", False) else maps

    maps, means, starts = "images", [], []
    for number, stage in enumerate(net.stages()):
        starts.append(maps)
        for layer in stage:
            maps = add_layer(layer, maps)
        if number in net.earlier_stages:
            means.append(add("GlobalAveragePool", maps))
    outputs = [add("GlobalAveragePool", maps), *means, *([starts[-thaw]] if thaw else [])]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        net.name,
        [tensor("images", TensorProto.FLOAT, ["B", net.in_channels, "H", "W"])],
        [tensor(name, TensorProto.FLOAT, None) for name in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())
