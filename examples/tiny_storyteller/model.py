"""A small Llama in plain PyTorch, with the parameter names of Meta's checkpoints, and its 4-bit fake quantization."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUP = 32  # weights that share one scale, along the input dimension


@dataclass(frozen=True)
class Config:
    """Field names are those of ExecuTorch's params.json."""

    dim: int = 256
    hidden_dim: int = 640
    n_heads: int = 8
    n_kv_heads: int = 2
    n_layers: int = 4
    vocab_size: int = 2048
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    use_scaled_rope: bool = False

    def params(self) -> dict[str, object]:
        return asdict(self)


def fake_quant(w: Tensor) -> Tensor:
    """w as the exporter's 4-bit symmetric group quantization would store it; the gradient passes straight through."""
    with torch.no_grad():
        groups = w.view(w.shape[0], -1, GROUP)
        scale = groups.abs().amax(-1, keepdim=True).div(7.5).clamp_min(torch.finfo(torch.float32).eps)
        snapped = (groups * (1 / scale)).round().clamp(-8, 7).mul(scale).view_as(w)  # torchao rounds the same product
    return w + (snapped - w).detach()


class Linear(nn.Linear):
    """No bias; `quant` turns fake quantization on."""

    quant = False

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, fake_quant(self.weight) if self.quant else self.weight)


def rope_table(cfg: Config, length: int) -> Tensor:
    """[length, head_dim / 2, 2]: cos and sin."""
    half = torch.arange(0, cfg.dim // cfg.n_heads, 2) / (cfg.dim // cfg.n_heads)
    angle = torch.outer(torch.arange(length).float(), cfg.rope_theta**-half)
    return torch.stack([angle.cos(), angle.sin()], -1)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotary embedding of [B, S, H, D] on the pairs (2i, 2i+1)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = cfg.n_heads, cfg.n_kv_heads, cfg.dim // cfg.n_heads
        self.wq = Linear(cfg.dim, cfg.dim)
        self.wk = Linear(cfg.dim, self.kv_heads * self.head_dim)
        self.wv = Linear(cfg.dim, self.kv_heads * self.head_dim)
        self.wo = Linear(cfg.dim, cfg.dim)

    @torch.no_grad()
    def copy_init(self) -> None:
        """To attend to a token is, to begin with, to say it again: the output projection undoes the values'."""
        v = self.wv.weight.view(self.kv_heads, 1, self.head_dim, -1).expand(-1, self.heads // self.kv_heads, -1, -1)
        self.wo.weight.copy_(0.35 * v.reshape(self.heads * self.head_dim, -1).T)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        b, s, d = x.shape
        q = rotate(self.wq(x).view(b, s, self.heads, -1), table).transpose(1, 2)
        k = rotate(self.wk(x).view(b, s, self.kv_heads, -1), table).transpose(1, 2)
        v = self.wv(x).view(b, s, self.kv_heads, -1).transpose(1, 2)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, s, d))


class FeedForward(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.w1 = Linear(cfg.dim, cfg.hidden_dim)
        self.w2 = Linear(cfg.hidden_dim, cfg.dim)
        self.w3 = Linear(cfg.dim, cfg.hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(cfg), FeedForward(cfg)
        self.attention_norm = nn.RMSNorm(cfg.dim, cfg.norm_eps)
        self.ffn_norm = nn.RMSNorm(cfg.dim, cfg.norm_eps)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, cfg: Config, max_len: int = 1024) -> None:
        super().__init__()
        self.cfg, self.quant = cfg, False
        self.tok_embeddings = nn.Embedding(cfg.vocab_size, cfg.dim)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layers))
        self.norm = nn.RMSNorm(cfg.dim, cfg.norm_eps)
        self.register_buffer("table", rope_table(cfg, max_len), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                depth = (2 * cfg.n_layers) ** -0.5 if name.endswith("w2.weight") else 1.0
                # The token must not drown in what the layers add to it, or no later position can copy it.
                nn.init.normal_(p, std=0.3 if p is self.tok_embeddings.weight else depth * p.shape[1] ** -0.5)
        nn.init.constant_(self.norm.weight, 0.15)  # such embeddings are also the output layer
        for layer in self.layers:
            layer.attention.copy_init()

    def set_quant(self, on: bool) -> None:
        """Fake 4-bit weights everywhere, the (tied) embedding included."""
        self.quant = on
        for m in self.modules():
            if isinstance(m, Linear):
                m.quant = on

    def forward(self, ids: Tensor) -> Tensor:
        embedding = fake_quant(self.tok_embeddings.weight) if self.quant else self.tok_embeddings.weight
        x = functional.embedding(ids, embedding)
        table = self.table[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, table)
        return functional.linear(self.norm(x), embedding)

    def checkpoint(self) -> dict[str, Tensor]:
        """Meta's names; the output head is the embedding."""
        state = {k: v.detach().clone() for k, v in self.state_dict().items()}
        state["output.weight"] = state["tok_embeddings.weight"]
        return state
