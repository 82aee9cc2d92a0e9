"""Models of plain torch for `bench/zoo.py` that need what networks for images and text seldom do.

Bags of rows, folded patches, scattered maxima, peaks of a heat map, states that go in and out, sizes that depend on
other inputs, several dynamic dims, quantization with other settings.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.export import Dim
from zoo_nets import ZOO, Entry, block, classifier, dynamic_image, entry, image, initialize, noise, resnet

Tensor = torch.Tensor


class Ranking(nn.Module):
    """DLRM: dense features, bags of categories, and the products of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 8, mode=m) for m in ("sum", "mean", "max"))
        self.top = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x: Tensor, index: Tensor, offsets: Tensor) -> Tensor:
        d = self.dense(x)
        rows = torch.stack([d, *(bag(index, offsets) for bag in self.bags)], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        return self.top(torch.cat([d, products.flatten(1)], 1))


class Patches(nn.Module):
    """Overlapping patches, each transformed, and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(27, 27)

    def forward(self, x: Tensor) -> Tensor:
        columns = F.unfold(x, 3, padding=1, stride=2).transpose(1, 2)
        return F.fold(self.mix(columns).tanh().transpose(1, 2), x.shape[2:], 3, padding=1, stride=2)


class GraphAttention(nn.Module):
    """A softmax over the edges that end in each node."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.a = nn.Linear(8, 12), nn.Linear(24, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h, (source, target) = self.w(x), (edges[0], edges[1])
        score = F.leaky_relu(self.a(torch.cat([h[source], h[target]], 1)), 0.2)[:, 0]
        most = torch.full((x.shape[0],), -1e9).scatter_reduce(0, target, score, "amax")
        weight = torch.exp(score - most[target])
        total = torch.zeros(x.shape[0]).scatter_add(0, target, weight)
        sent = h[source] * (weight / total[target])[:, None]
        return F.elu(torch.zeros(x.shape[0], 12).index_add(0, target, sent))


class Peaks(nn.Module):
    """CenterNet: the peaks of a heat map, their classes, and boxes around them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heat, self.size = (
            nn.Sequential(block(3, 8, 3, 2), block(8, 8)),
            nn.Conv2d(8, 3, 1),
            nn.Conv2d(8, 2, 1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f = self.body(x)
        heat = self.heat(f).sigmoid()
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat).float()
        score, index = heat.flatten(1).topk(5)
        area = heat.shape[2] * heat.shape[3]
        place = index % area
        size = self.size(f).flatten(2).gather(2, place[:, None].expand(-1, 2, -1)).transpose(1, 2).exp()
        centre = torch.stack([place % heat.shape[3], place // heat.shape[3]], -1).float()
        return score, index // area, torch.cat([centre - size / 2, centre + size / 2], -1)


class Step(nn.Module):
    """One token of a decoder whose caches are inputs and outputs; the number of earlier tokens changes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(self.embed(token)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        seen = F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2)
        return self.out(seen), keys, values


class Padded(nn.Module):
    """Attention pooling over rows of different lengths, with a dynamic batch and a dynamic length."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.value = nn.Linear(12, 1), nn.Linear(12, 6)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        is_text = torch.arange(x.shape[1])[None] < lengths[:, None]
        score = self.score(x)[..., 0].masked_fill(~is_text, float("-inf"))
        return (F.softmax(score, -1)[..., None] * self.value(x)).sum(1)


class Recurrence(nn.Module):
    """A convolutional LSTM cell: its states are inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(7, 16, 3, padding=1)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Skips(nn.Module):
    """A U-net for any size: what comes up gets the size of what it meets."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = block(3, 8), block(8, 12, 3, 2), block(12, 16, 3, 2)
        self.d, self.e = block(28, 12), nn.Conv2d(20, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(a)
        up = F.interpolate(self.c(b), size=b.shape[2:], mode="bilinear")
        up = F.interpolate(self.d(torch.cat([up, b], 1)), size=a.shape[2:], mode="nearest")
        return self.e(torch.cat([up, a], 1)).argmax(1)


class Warp(nn.Module):
    """A spatial transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6))

    def forward(self, x: Tensor) -> Tensor:
        theta = self.where(x).view(-1, 2, 3) * 0.2 + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
        return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


class Flow(nn.Module):
    """Coupling layers of a normalizing flow; the second output is a number for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 6)) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logdet = torch.zeros(x.shape[0])
        for net in self.nets:
            a, b = x.chunk(2, -1)
            s, t = net(a).chunk(2, -1)
            x = torch.cat([b * torch.exp(s.tanh()) + t, a], -1)
            logdet = logdet + s.tanh().sum(-1)
        return x, logdet - 0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)


class Rays(nn.Module):
    """NeRF: encoded positions, densities, and colours along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(27, 32), nn.Softplus(), nn.Linear(32, 4))

    def forward(self, origin: Tensor, direction: Tensor) -> Tensor:
        t = torch.linspace(1, 3, 8)
        x = origin[:, None] + direction[:, None] * t[:, None]
        angles = x[..., None] * 2.0 ** torch.arange(4)
        out = self.net(torch.cat([x, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1))
        alpha = 1 - torch.exp(-F.softplus(out[..., 3]) * 0.25)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-10], 1), 1)
        return ((alpha * through)[..., None] * out[..., :3].sigmoid()).sum(1)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.n1, self.n2 = nn.Conv2d(3, 16, 8, 8), nn.LayerNorm(16), nn.LayerNorm(16)
        self.across, self.within = (nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.across(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.within(self.n2(x))).mean(1)


class Inception(nn.Module):
    """Branches with other kernels, with a local response norm before them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = block(3, 8, 5, 2), nn.LocalResponseNorm(3)
        self.branches = nn.ModuleList(
            [
                block(8, 4, 1),
                block(8, 6, 3),
                nn.Sequential(block(8, 4, 1), nn.Conv2d(4, 6, (1, 7), padding=(0, 3))),
                nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), block(8, 4, 1)),
            ]
        )
        self.head = nn.Sequential(*classifier(20))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        return self.head(torch.cat([b(x) for b in self.branches], 1))


class Bidirectional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(6, 8, batch_first=True, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0]).log_softmax(-1)


class Checked(nn.Module):
    """Integers, booleans and float64 in and out."""

    def forward(self, pixels: Tensor, keep: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        x = (pixels.float() / 255 - 0.5) / 0.25
        rows = x.mean((1, 2))
        return (
            torch.where(keep, rows, -rows),
            rows > 0,
            (pixels // 16).to(torch.int32).sum((1, 2)),
            weights @ rows.double(),
        )


@entry
def ranking() -> Entry:
    index = torch.randint(0, 20, (9,))
    return Entry(Ranking(), [(noise(4, 6), index, torch.tensor([0, 2, 2, 6]))])


@entry
def patches() -> Entry:
    return image(Patches(), 9)


@entry
def graph_attention() -> Entry:
    return Entry(GraphAttention(), [(noise(10, 8), torch.randint(0, 10, (2, 24)))])


@entry
def peaks() -> Entry:
    return image(Peaks())


@entry
def decode_step_dyn() -> Entry:
    past = Dim("past", min=1, max=30)
    calls = [(torch.randint(0, 50, (1, 1)), noise(1, 2, n, 8), noise(1, 2, n, 8)) for n in (5, 30, 1, 6)]
    return Entry(Step(), calls, ({}, {2: past}, {2: past}))


@entry
def padded_dyn() -> Entry:
    b, s = Dim("b", min=1, max=4), Dim("s", min=2, max=16)
    calls = [(noise(n, m, 12), torch.randint(1, m + 1, (n,))) for n, m in ((3, 7), (4, 16), (1, 2), (2, 9))]
    return Entry(Padded(), calls, ({0: b, 1: s}, {0: b}))


@entry
def recurrence() -> Entry:
    return Entry(Recurrence(), [(noise(1, 3, 8, 8), noise(1, 4, 8, 8), noise(1, 4, 8, 8))])


@entry
def skips_dyn_hw() -> Entry:
    sizes = ({2: Dim("h", min=8, max=40), 3: Dim("w", min=8, max=40)},)
    return Entry(Skips(), [(noise(1, 3, h, w),) for h, w in ((32, 32), (9, 40), (40, 17), (8, 8))], sizes)


@entry
def warp() -> Entry:
    return image(Warp(), 16, 1)


@entry
def flow_dyn() -> Entry:
    return Entry(Flow(), [(noise(n, 6),) for n in (4, 16, 1)], ({0: Dim("b", min=1, max=16)},))


@entry
def rays_dyn() -> Entry:
    calls = [(noise(n, 3), noise(n, 3)) for n in (6, 20, 2)]
    return Entry(Rays(), calls, ({0: Dim("n", min=2, max=20)},) * 2)


@entry
def mixer() -> Entry:
    return image(Mixer())


@entry
def inception() -> Entry:
    return image(Inception())


@entry
def bidirectional() -> Entry:
    return Entry(Bidirectional(), [(noise(2, 5, 6),)])


@entry
def kinds_of_numbers() -> Entry:
    pixels = torch.randint(0, 256, (3, 4, 4), dtype=torch.uint8)
    return Entry(Checked(), [(pixels, torch.tensor([True, False, True]), noise(2, 3).double())])


@entry
def video() -> Entry:
    parts = (nn.Conv3d(3, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(6, 8, (1, 3, 3)))
    return Entry(
        nn.Sequential(*parts, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 4)), [(noise(1, 3, 4, 12, 12),)]
    )


@entry
def resnet_dyn_batch() -> Entry:
    return Entry(resnet(), [(noise(n, 3, 32, 32),) for n in (2, 4, 1)], ({0: Dim("b", min=1, max=4)},))


@entry
def upscaler_dyn_hw() -> Entry:
    """Real-ESRGAN: dense blocks with a leaky relu, and nearest neighbours."""
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=2, mode="nearest")]
    return dynamic_image(
        nn.Sequential(*parts, nn.Conv2d(8, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(8, 3, 3, padding=1))
    )


def _quantized(build: Any, **settings: Any) -> Entry:
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import VulkanQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    made = build()
    initialize(made.model)
    quantizer = VulkanQuantizer().set_global(get_symmetric_quantization_config(**settings))
    traced = prepare_pt2e(torch.export.export(made.model.eval(), made.calls[0], strict=True).module(), quantizer)
    traced(*made.calls[0])
    return Entry(convert_pt2e(traced), made.calls[:1], tolerance=5e-2, is_initialized=True)


def _linears() -> Entry:
    return Entry(
        nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 8)), [(noise(3, 64),)]
    )


def _torchao(kind: str) -> Entry:
    """Linears quantized by torchao, as `optimum-executorch` and tutorials do."""
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.utils import unwrap_tensor_subclass

    config = {
        "8w": lambda: IntxWeightOnlyConfig(torch.int8, PerAxis(0)),
        "8w_groups": lambda: IntxWeightOnlyConfig(torch.int8, PerGroup(16)),
        "4w_rows": lambda: IntxWeightOnlyConfig(torch.int4, PerAxis(0)),
        "4w_groups16": lambda: IntxWeightOnlyConfig(torch.int4, PerGroup(16)),
        "8da8w": lambda: Int8DynamicActivationIntxWeightConfig(torch.int8, PerAxis(0)),
        "8da4w_rows": lambda: Int8DynamicActivationIntxWeightConfig(torch.int4, PerAxis(0)),
        "8da4w_groups16": lambda: Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(16)),
    }[kind]()
    made = _linears()
    initialize(made.model)
    quantize_(made.model.eval(), config)
    unwrap_tensor_subclass(made.model)
    return Entry(made.model, made.calls, tolerance=5e-2, is_initialized=True)


TORCHAO = "8w 8w_groups 4w_rows 4w_groups16 8da8w 8da4w_rows 8da4w_groups16"


def quantized() -> None:
    for kind in TORCHAO.split():
        ZOO[f"linears_{kind}"] = lambda kind=kind: _torchao(kind)
    ZOO["resnet_q8w"] = lambda: _quantized(ZOO["resnet"], is_dynamic=False, weight_bits=8)
    ZOO["resnet_q8_dynamic"] = lambda: _quantized(ZOO["resnet"], is_dynamic=True, act_bits=8, weight_bits=8)
    eight, four = {"weight_bits": 8}, {"weight_bits": 4}
    static, dynamic = {"is_dynamic": False, "act_bits": 8}, {"is_dynamic": True, "act_bits": 8}
    ZOO["mobilenet_q8"] = lambda: _quantized(ZOO["mobilenet_v2"], **static, **eight)
    ZOO["mobilenet_v3_q8"] = lambda: _quantized(ZOO["mobilenet_v3"], **static, **eight)
    ZOO["unet_q8"] = lambda: _quantized(ZOO["unet_transposed"], **static, **eight)
    ZOO["unet_bilinear_q8"] = lambda: _quantized(ZOO["unet_bilinear"], **static, **eight)
    ZOO["densenet_q8"] = lambda: _quantized(ZOO["densenet"], **static, **eight)
    ZOO["shufflenet_q8"] = lambda: _quantized(ZOO["shufflenet"], **static, **eight)
    ZOO["linears_q8"] = lambda: _quantized(_linears, **static, **eight)
    ZOO["linears_q8_dynamic"] = lambda: _quantized(_linears, **dynamic, **eight)
    ZOO["linears_q8w"] = lambda: _quantized(_linears, is_dynamic=False, **eight)
    ZOO["linears_q4w"] = lambda: _quantized(_linears, is_dynamic=False, **four)
    ZOO["vit_q8"] = lambda: _quantized(ZOO["vit"], **static, **eight)


quantized()
