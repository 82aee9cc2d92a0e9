"""`--input`: files, archives and pictures, in order and by name; and what is printed of the outputs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from webgpu_run.cli.arrays import PictureSettings, describe, names_of, read_inputs, read_picture
from webgpu_run.errors import FormatError, RunError, ShapeError, UsageError
from webgpu_run.formats import pte

from helpers.command import webgpu_run

FIXTURES = Path(__file__).parent / "fixtures"
PLAIN = PictureSettings()


def method(*specs: pte.Tensor) -> pte.Method:
    return pte.Method("forward", tuple(range(len(specs))), tuple(range(len(specs))), specs, ())


def tensor(*dims: int, dtype: str = "float32", **kw: str) -> pte.Tensor:
    return pte.Tensor(dtype, dims, tuple(range(len(dims))), **kw)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.zeros(2, np.float32))
    np.save(tmp_path / "b.npy", np.ones(3, np.float32))
    np.savez(tmp_path / "named.npz", input_1=np.ones(3), input_0=np.zeros(2))
    np.savez_compressed(tmp_path / "ordered.npz", np.zeros(2), np.ones(3))
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        ["a.npy", "b.npy"],
        ["input_1=b.npy", "a.npy"],
        ["input_1=b.npy", "input_0=a.npy"],
        ["named.npz"],
        ["ordered.npz"],
    ],
)
def test_inputs_in_order_and_by_name(given: list[str], files: Path) -> None:
    paths = ["=".join((*item.split("=")[:-1], str(files / item.split("=")[-1]))) for item in given]
    first, second = read_inputs(paths, method(tensor(2), tensor(3)), PLAIN)
    assert (first.tolist(), second.tolist()) == ([0, 0], [1, 1, 1])


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (["a.npy"], UsageError, "1 input given, 'forward' takes 2: float32 [2], float32 [3]"),
        (["a.npy", "b.npy", "b.npy"], UsageError, "more inputs given than 'forward' takes; it takes 2 inputs"),
        (["input_0=a.npy", "input_0=b.npy"], UsageError, "input_0 is given twice"),
        (["x=a.npy"], UsageError, "no input is named 'x': the inputs are input_0, input_1"),
        (["bomb.npz"], ShapeError, "more data than the inputs take"),
        (["bad.npz"], FormatError, "not a readable .npz file"),
        (["none.npz"], FormatError, "no such file"),
        (["text.npz"], FormatError, "not a .npy file"),
    ],
)
def test_wrong_inputs(
    given: list[str], kind: type[RunError], says: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    np.savez_compressed("bomb.npz", np.zeros(1 << 20))
    Path("bad.npz").write_bytes(b"PK\x03\x04" + bytes(60))
    with zipfile.ZipFile("text.npz", "w") as archive:
        archive.writestr("a.npy", "hello")
    with pytest.raises(kind) as caught:
        read_inputs(given, method(tensor(2), tensor(3)), PLAIN)
    assert says in str(caught.value)


def picture(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) * 3
    Image.fromarray(pixels).save(path)
    return pixels


def test_pictures(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "p.png")
    path = str(tmp_path / "p.png")
    scaled = pixels.astype(np.float32) / 255
    assert np.allclose(read_picture(path, tensor(1, 3, 4, 6), PLAIN)[0], scaled.transpose(2, 0, 1))
    assert np.allclose(read_picture(path, tensor(4, 6, 3), PLAIN), scaled)
    assert np.array_equal(read_picture(path, tensor(1, 4, 6, 3, dtype="uint8"), PLAIN)[0], pixels)
    mean, std = (0.5, 0.4, 0.3), (0.1, 0.2, 0.3)
    normed = read_picture(path, tensor(1, 3, 4, 6), PictureSettings(None, mean, std))
    assert np.allclose(normed[0], ((scaled - mean) / std).transpose(2, 0, 1), atol=1e-5)
    assert read_picture(path, tensor(1, 3, 8, 8), PLAIN).shape == (1, 3, 8, 8)
    assert read_picture(path, tensor(1, 3, 8, 8, dynamism="bound"), PLAIN).shape == (1, 3, 4, 6)
    assert read_picture(path, tensor(1, 3, 8, 8, dynamism="bound"), PictureSettings((5, 7))).shape == (1, 3, 7, 5)
    with pytest.raises(ShapeError, match="the picture is 6x4, the model takes at most 8x3") as large:
        read_picture(path, tensor(1, 3, 3, 8, dynamism="bound"), PLAIN)
    assert large.value.hint == "--resize 8x3"
    assert read_picture(path, tensor(1, 1, 4, 6), PLAIN).shape == (1, 1, 4, 6)
    with pytest.raises(ShapeError, match="cannot be an input of dims"):
        read_picture(path, tensor(2, 2), PLAIN)
    with pytest.raises(UsageError, match="2 numbers for --mean or --std, the picture has 3 channels"):
        read_picture(path, tensor(1, 3, 4, 6), PictureSettings(None, (1.0, 2.0)))
    (tmp_path / "bad.png").write_bytes((tmp_path / "p.png").read_bytes()[:40])
    with pytest.raises(FormatError, match="not a picture that Pillow can read"):
        read_picture(str(tmp_path / "bad.png"), tensor(1, 3, 4, 6), PLAIN)


def test_names_of_the_file_are_used_if_they_are_names() -> None:
    specs = [tensor(1, name=n) for n in ("ids", "", "a/b", "same", "same", "..")]
    assert names_of(method(*specs), range(6), "output") == [
        "ids",
        "output_1",
        "a_b",
        "output_3",
        "output_4",
        "output_5",
    ]


def test_what_is_printed_of_an_output() -> None:
    row = np.array([[0.5, 2, 1, 9, 3, 8]], np.float32)
    first, best = describe("output_0", row)
    assert first == "output_0  float32 [1, 6]  min 0.5  mean 3.91667  max 9"
    assert best == "  top 5  3: 9  5: 8  4: 3  1: 2  2: 1"
    assert describe("x", np.zeros((0, 6), np.float32)) == ["x  float32 [0, 6]"]
    assert len(describe("x", np.zeros((5, 6), np.float32))) == 1
    assert describe("x", np.array([True, False])) == ["x  bool [2]  min 0  mean 0.5  max 1"]


def test_a_picture_without_pillow(tmp_path: Path) -> None:
    """The command says in one line what to install. A package that cannot be imported stands for a missing one."""
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("raise ImportError")
    picture(tmp_path / "p.png")
    path = f"{tmp_path}:{Path(__file__).parents[1]}"
    result = webgpu_run(FIXTURES / "tiny_dyn.pte", "--input", tmp_path / "p.png", env={"PYTHONPATH": path})
    assert result.code == 4
    assert result.err.splitlines()[0] == f"webgpu-run: error: reading a picture needs Pillow ({tmp_path / 'p.png'})"
    assert "hint: pip install 'webgpu-run[images]'" in result.err


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--resize", "0x5", "not a size such as 224 or 640x480"),
        ("--resize", "axb", "not a size such as 224 or 640x480"),
        ("--std", "1,0,1", "not a list of positive numbers"),
        ("--mean", "nan", "not a list of numbers"),
    ],
)
def test_picture_options(flag: str, value: str, says: str) -> None:
    result = webgpu_run(FIXTURES / "tiny_dyn.pte", "--input", "x.png", flag, value)
    assert (result.code, says in result.err) == (2, True)
