"""Models of plain torch for `bench/zoo.py`, with few and random weights, and what all entries of the zoo share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export import Dim

Tensors = tuple[Any, ...]  # a few are numbers
WIDTH, VOCAB, LENGTH = 32, 64, 12


@dataclass
class Entry:
    """A model, its live inputs (the first is exported), and how it is exported."""

    model: nn.Module
    calls: Sequence[Tensors]
    dynamic: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-4
    is_initialized: bool = False


ZOO: dict[str, Callable[[], Entry]] = {}
BIG: dict[str, Callable[[], Entry]] = {}


def entry(f: Callable[[], Entry]) -> Callable[[], Entry]:
    ZOO[f.__name__] = f
    return f


def noise(*dims: int) -> torch.Tensor:
    return torch.randn(dims)


def tokens(*dims: int) -> torch.Tensor:
    return torch.randint(3, VOCAB, dims)


def initialize(model: nn.Module) -> None:
    """Weights that keep activations near 1, and statistics that are not 0 and 1, so that every op matters."""
    for name, p in model.named_parameters():
        if p.ndim > 1:
            nn.init.normal_(p, std=1.2 / math.sqrt(p[0].numel()))
        elif name.endswith("bias") or p.ndim == 0:
            nn.init.normal_(p, std=0.1)
        else:
            nn.init.normal_(p, 1.0, 0.2)
    for name, b in model.named_buffers():
        if name.endswith("running_mean"):
            nn.init.normal_(b, std=0.2)
        elif name.endswith("running_var"):
            nn.init.uniform_(b, 0.5, 1.5)


def image(model: nn.Module, side: int = 32, channels: int = 3, **kw: Any) -> Entry:
    return Entry(model, [(noise(1, channels, side, side),)], **kw)


def dynamic_image(model: nn.Module, side: int = 64) -> Entry:
    """Height and width change, in steps of 16."""
    sizes = ({2: Dim("h", min=1, max=side // 16) * 16, 3: Dim("w", min=1, max=side // 16) * 16},)
    return Entry(model, [(noise(1, 3, h, w),) for h, w in ((side, side), (32, 48), (16, 64))], sizes)


def block(
    i: int, o: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
) -> nn.Sequential:
    parts: list[nn.Module] = [
        nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(o),
    ]
    return nn.Sequential(*parts, *([act()] if act else []))


class Sum(nn.Module):
    """The sum of what several branches give."""

    def __init__(self, *branches: nn.Module, last: nn.Module | None = None) -> None:
        super().__init__()
        self.branches, self.last = nn.ModuleList(branches), last or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.branches[0](x)
        for branch in self.branches[1:]:
            total = total + branch(x)
        return self.last(total)


def classifier(width: int, classes: int = 10) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]


def resnet(width: int = 8, stages: int = 3, blocks: int = 1, classes: int = 10) -> nn.Module:
    """ResNet-18 has width 64, four stages of two blocks, and 1000 classes."""
    layers: list[nn.Module] = [block(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inner = width
    for k in range(stages * blocks):
        outer, stride = width << (k // blocks), 2 if k and k % blocks == 0 else 1
        short = nn.Identity() if inner == outer else block(inner, outer, 1, stride, act=None)
        body = nn.Sequential(block(inner, outer, 3, stride), block(outer, outer, act=None))
        layers.append(Sum(body, short, last=nn.ReLU()))
        inner = outer
    return nn.Sequential(*layers, *classifier(inner, classes))


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int, gate: type[nn.Module]) -> None:
        super().__init__()
        self.f = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.ReLU(), nn.Conv2d(8, width, 1), gate()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.f(x)


def mobilenet(act: type[nn.Module], gate: type[nn.Module] | None = None) -> nn.Module:
    def inverted(i: int, o: int, stride: int) -> nn.Module:
        middle = [Gate(4 * i, gate)] if gate else []
        body = nn.Sequential(
            block(i, 4 * i, 1, act=act),
            block(4 * i, 4 * i, 3, stride, 4 * i, act),
            *middle,
            block(4 * i, o, 1, act=None),
        )
        return Sum(body, nn.Identity()) if stride == 1 and i == o else body

    return nn.Sequential(
        block(3, 8, 3, 2, act=act),
        inverted(8, 12, 2),
        inverted(12, 12, 1),
        inverted(12, 16, 2),
        block(16, 32, 1, act=act),
        *classifier(32),
    )


class UNet(nn.Module):
    def __init__(self, up: str) -> None:
        super().__init__()
        self.down, self.deep, self.join, self.head = block(3, 8), block(8, 16), block(16, 8), nn.Conv2d(8, 4, 1)
        if up == "transposed":
            self.up: nn.Module = nn.ConvTranspose2d(16, 8, 2, 2)
        else:
            align = {} if up == "nearest" else {"align_corners": False}
            self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode=up, **align), nn.Conv2d(16, 8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = self.down(x)
        return self.head(self.join(torch.cat([top, self.up(self.deep(F.max_pool2d(top, 2)))], 1)))


class Shuffle(nn.Module):
    """ShuffleNet's unit: half of the channels are transformed, then both halves are interleaved."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.f = nn.Sequential(
            block(width // 2, width // 2, 1),
            block(width // 2, width // 2, 3, 1, width // 2, None),
            block(width // 2, width // 2, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 1)
        y = torch.stack([a, self.f(b)], 2)
        return y.flatten(1, 2)


class Dense(nn.Module):
    """DenseNet's block: each layer sees the outputs of all before it."""

    def __init__(self, width: int, growth: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(width + k * growth), nn.ReLU(), nn.Conv2d(width + k * growth, growth, 3, padding=1)
            )
            for k in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Detector(nn.Module):
    """A one-stage detector: two scales, pooled context, boxes as distributions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (
            nn.Sequential(block(3, 8, 3, 2, act=nn.SiLU), block(8, 16, 3, 2, act=nn.SiLU)),
            block(16, 16, 3, 2, act=nn.SiLU),
        )
        self.mix, self.heads = (
            block(48, 16, 1, act=nn.SiLU),
            nn.ModuleList(nn.Conv2d(c, 4 * 8 + 3, 1) for c in (32, 16)),
        )
        self.register_buffer("bins", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.a(x)
        coarse = self.b(fine)
        near = F.max_pool2d(coarse, 5, 1, 2)
        coarse = self.mix(torch.cat([coarse, near, F.max_pool2d(near, 5, 1, 2)], 1))
        fine = torch.cat([fine, F.interpolate(coarse, scale_factor=2.0, mode="nearest")], 1)
        found = torch.cat([h(y).flatten(2) for h, y in zip(self.heads, (fine, coarse), strict=True)], 2)
        boxes, classes = found.split((32, 3), 1)
        boxes = (boxes.view(1, 4, 8, -1).softmax(2) * self.bins.view(1, 1, 8, 1)).sum(2)
        return torch.cat([boxes, classes.sigmoid()], 1)


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(VOCAB, 8), cell(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.table(ids))[0])


class Dilated(nn.Module):
    """Causal convolutions over time, with growing dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(12, 12, 3, dilation=2**k) for k in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, layer in enumerate(self.layers):
            x = x + F.gelu(layer(F.pad(x, (2 * 2**k, 0))))
        return x


@entry
def mlp_dyn_batch() -> Entry:
    model = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10), nn.LogSoftmax(-1))
    return Entry(model, [(noise(n, 16),) for n in (8, 1, 16, 5)], ({0: Dim("b", min=1, max=16)},))


class Numbers(nn.Module):
    """A method with numbers as inputs and as an output."""

    def forward(self, x: torch.Tensor, count: int, shift: float) -> tuple[torch.Tensor, int]:
        return x * count + shift, x.shape[0]


@entry
def numbers_dyn() -> Entry:
    return Entry(Numbers(), [(noise(n, 3), 3, 0.5) for n in (4, 8, 2)], ({0: Dim("b", min=2, max=8)}, None, None))


@entry
def lenet() -> Entry:
    parts = (nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.Tanh(), nn.AvgPool2d(2))
    return image(nn.Sequential(*parts, nn.Flatten(), nn.Linear(200, 40), nn.Sigmoid(), nn.Linear(40, 10)), 28, 1)


@entry
def autoencoder() -> Entry:
    return image(
        nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 12, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose2d(12, 8, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
            nn.Tanh(),
        )
    )


@entry
def super_resolution() -> Entry:
    return image(
        nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            Sum(nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.PReLU()), nn.Identity()),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.PixelShuffle(2),
        ),
        16,
    )


@entry
def vae_decoder() -> Entry:
    return image(
        nn.Sequential(
            nn.Conv2d(4, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.SiLU(),
            nn.Upsample(scale_factor=2.0),
            nn.Conv2d(16, 3, 3, padding=1),
            nn.Hardtanh(),
        ),
        8,
        4,
    )


@entry
def aspp() -> Entry:
    return image(
        nn.Sequential(
            block(3, 8, 3, 2),
            Sum(*(nn.Conv2d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4))),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        )
    )


def plain_models() -> None:
    ZOO["resnet"] = lambda: image(resnet())
    ZOO["resnet_batch3"] = lambda: Entry(resnet(), [(noise(3, 3, 32, 32),)])
    ZOO["resnet_fp16"] = lambda: image(resnet(), options={"force_fp16": True}, tolerance=2e-2)
    ZOO["resnet_dyn_hw"] = lambda: dynamic_image(resnet())
    ZOO["mobilenet_v2"] = lambda: image(mobilenet(nn.ReLU6))
    ZOO["mobilenet_v3"] = lambda: image(mobilenet(nn.Hardswish, nn.Hardsigmoid))
    ZOO["mobilenet_v3_dyn_hw"] = lambda: dynamic_image(mobilenet(nn.Hardswish, nn.Hardsigmoid))
    ZOO["efficientnet"] = lambda: image(mobilenet(nn.SiLU, nn.Sigmoid))
    for kind in ("transposed", "bilinear", "nearest"):
        ZOO[f"unet_{kind}"] = lambda kind=kind: image(UNet(kind))
    ZOO["unet_dyn_hw"] = lambda: dynamic_image(UNet("transposed"))
    ZOO["shufflenet"] = lambda: image(nn.Sequential(block(3, 16, 3, 2), Shuffle(16), *classifier(16)))
    ZOO["densenet"] = lambda: image(nn.Sequential(block(3, 8, 3, 2), Dense(8, 4, 3), nn.AvgPool2d(2), *classifier(20)))
    ZOO["detector"] = lambda: image(Detector())
    ZOO["gru"] = lambda: Entry(Recurrent(nn.GRU), [(tokens(1, 4),)])
    ZOO["lstm"] = lambda: Entry(Recurrent(nn.LSTM), [(tokens(1, 4),)])
    ZOO["dilated_conv1d"] = lambda: Entry(Dilated(), [(noise(1, 12, 40),)])
    ZOO["audio_conv1d"] = lambda: Entry(
        nn.Sequential(
            nn.Conv1d(1, 16, 40, 8),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(16, 16, 3),
            nn.Flatten(),
            nn.Linear(16 * 13, 5),
        ),
        [(noise(1, 1, 520),)],
    )
    layer = {"d_model": WIDTH, "nhead": 4, "dim_feedforward": 64, "batch_first": True, "dropout": 0.0}
    ZOO["transformer_encoder"] = lambda: Entry(nn.TransformerEncoderLayer(**layer), [(noise(1, LENGTH, WIDTH),)])


plain_models()
