"""Arrays for `--input`: .npy and .npz files, and pictures; by position or by name."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..console.terminal import plural
from ..errors import FormatError, ShapeError, UnsupportedError, UsageError
from ..formats.pte import Method, Tensor, input_spec
from ..shapes import Array

_MAGIC = b"\x93NUMPY"
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
MAX_SPARE = 1 << 20  # bytes of an .npz beyond what the inputs can take: headers


@dataclass(frozen=True, slots=True)
class PictureSettings:
    """How a picture becomes numbers: its size, then (x / 255 - mean) / std per channel."""

    resize: tuple[int, int] | None = None  # width, height
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def names_of(method: Method, ids: Sequence[int], kind: str) -> list[str]:
    """The names of inputs or outputs: those of the file if it has any, else input_0, input_1 and so on."""
    values = (method.values[i] for i in ids)
    stored = [v.name if isinstance(v, Tensor) else "" for v in values]
    plain = ["".join(c if c.isalnum() or c in "_.-" else "_" for c in name).lstrip(".") for name in stored]
    return [
        name if name and plain.count(name) == 1 and len(name) <= 100 else f"{kind}_{k}" for k, name in enumerate(plain)
    ]


def read_inputs(given: Sequence[str], method: Method, settings: PictureSettings) -> list[Array]:
    """The array of each input, from FILE or NAME=FILE. Files without a name fill the inputs in order."""
    found = [input_spec(method.values[i]) for i in method.inputs]
    specs = [spec for spec in found if spec is not None]
    all_names = names_of(method, method.inputs, "input")
    names = [name for name, spec in zip(all_names, found, strict=True) if spec is not None]
    arrays: dict[str, Array] = {}

    def put(name: str | None, array: Array) -> None:
        target = name or next((n for n in names if n not in arrays), None)
        if target is None or target in arrays:
            takes = ", ".join(f"{n} {t}" for n, t in zip(names, specs, strict=True))
            what = f"{target} is given twice" if target else f"more inputs given than {method.name!r} takes"
            raise UsageError(f"{what}; it takes {plural(len(specs), 'input')}: {takes or 'none'}")
        arrays[target] = array

    for item in given:
        name, _, path = item.rpartition("=")
        if name and name not in names:
            if not Path(item).exists():
                raise UsageError(f"no input is named {name!r}: the inputs are {', '.join(names) or 'none'}")
            name, path = "", item
        if path.lower().endswith(".npz") and not name:
            for key, array in read_npz(path, specs).items():
                put(key if key in names else None, array)
        elif path.lower().endswith(PICTURES):
            target = name or next((n for n in names if n not in arrays), None)
            put(target, read_picture(path, specs[names.index(target)], settings) if target else np.zeros(0))
        else:
            put(name or None, read_npy(path))
    if len(arrays) != len(specs):
        takes = ", ".join(map(str, specs))
        raise UsageError(f"{plural(len(arrays), 'input')} given, {method.name!r} takes {len(specs)}: {takes}")
    return [arrays[n] for n in names]


def read_npy(path: str) -> Array:
    """Read a .npy file of numbers. Unlike np.load, it compares the shape with the size of the file first."""
    try:
        with open(path, "rb") as file:
            return _npy(file, path)
    except OSError as error:
        raise FormatError(f"cannot read: {(error.strerror or str(error)).lower()} ({path})") from None


def _npy(file: BinaryIO, path: str) -> Array:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise FormatError(f"not a .npy file ({path})")
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read_header(file)
        data = file.read()
        if dtype.kind not in "biufc" or any(isinstance(dim, bool) or dim < 0 for dim in shape):
            raise ValueError
        if math.prod(shape) * dtype.itemsize > len(data):
            raise ValueError
        array = np.frombuffer(data, dtype, math.prod(shape))
        return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
    except OSError:
        raise
    except Exception:  # numpy evaluates the header as a Python literal, which can fail in many ways
        raise FormatError(f"a .npy file that is cut short or does not hold numbers ({path})") from None


def read_npz(path: str, specs: Sequence[Tensor]) -> Mapping[str, Array]:
    """The arrays of an .npz file. What would be larger than the inputs is refused before it is decompressed."""
    most = MAX_SPARE + sum(8 * math.prod(spec.dims) for spec in specs)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > most:
                raise ShapeError(f"an .npz file with more data than the inputs take ({path})")
            return {
                member.filename.removesuffix(".npy"): _npy(
                    io.BytesIO(archive.read(member)), f"{path}:{member.filename}"
                )
                for member in members
            }
    except OSError as error:
        raise FormatError(f"cannot read: {(error.strerror or str(error)).lower()} ({path})") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise FormatError(f"not a readable .npz file: {error} ({path})") from None


def read_picture(path: str, spec: Tensor, settings: PictureSettings) -> Array:
    """A picture in the layout of the input: [N, C, H, W], [N, H, W, C], or either without N."""
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            f"reading a picture needs Pillow ({path})", hint="pip install 'webgpu-run[images]', or pass a .npy file"
        ) from None
    dims = spec.dims[-3:]
    is_first = len(dims) == 3 and (dims[0] in (1, 3) or (dims[0] == 4 and dims[2] not in (1, 3)))
    if len(spec.dims) not in (3, 4) or (not is_first and dims[-1] not in (1, 3, 4)):
        raise ShapeError(f"a picture cannot be an input of dims {list(spec.dims)} ({path})")
    channels, height, width = dims if is_first else (dims[2], dims[0], dims[1])
    try:
        with Image.open(path) as opened:
            picture = opened.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    except OSError as error:
        what = error.strerror.lower() if error.strerror else "not a picture that Pillow can read"
        raise FormatError(f"cannot read: {what} ({path})") from None
    except Exception as error:  # decoders raise errors of many kinds
        raise FormatError(f"not a picture that Pillow can read: {type(error).__name__} ({path})") from None
    is_dynamic = spec.dynamism != "static"
    if is_dynamic and not settings.resize and (picture.width > width or picture.height > height):
        raise ShapeError(
            f"the picture is {picture.width}x{picture.height}, the model takes at most {width}x{height} ({path})",
            hint=f"--resize {width}x{height}",
        )
    size = settings.resize or (picture.size if is_dynamic else (width, height))
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    pixels: Any = np.asarray(picture).reshape(size[1], size[0], channels)
    if spec.array_dtype.startswith("float"):
        pixels = (pixels / np.float32(255) - _per_channel(settings.mean, channels)) / _per_channel(
            settings.std, channels
        )
    result: Array = (pixels.transpose(2, 0, 1) if is_first else pixels).astype(spec.array_dtype)
    return result[None] if len(spec.dims) == 4 else result


def _per_channel(values: tuple[float, ...], channels: int) -> Array:
    if len(values) not in (1, channels):
        raise UsageError(f"{len(values)} numbers for --mean or --std, the picture has {plural(channels, 'channel')}")
    return np.asarray(values, np.float32)


def describe(name: str, array: Array) -> list[str]:
    """Lines about an output: dtype, shape and range; the five largest values if it is one row, or a few rows."""
    text = f"{name}  {array.dtype} {list(array.shape)}"
    if not array.size:
        return [text]
    if array.dtype.kind in "fiub":
        text += f"  min {array.min():.6g}  mean {array.mean():.6g}  max {array.max():.6g}"
    lines = [text]
    if array.dtype.kind == "f" and array.ndim and array.shape[-1] > 5 and array.size <= 4 * array.shape[-1]:
        for row in array.reshape(-1, array.shape[-1]):
            best = np.argsort(-row, kind="stable")[:5]
            lines.append("  top 5  " + "  ".join(f"{i}: {row[i]:.6g}" for i in best))
    return lines
