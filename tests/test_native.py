"""gpu/native.py is the only module that uses wgpu-py's private attributes, and wgpu-py still has each of them."""

from __future__ import annotations

import ast
import importlib
import operator
import re
from pathlib import Path
from typing import Any

import pytest
from cffi import CDefError

import webgpu_run
from webgpu_run.gpu import native
from webgpu_run.gpu.device import Device

PACKAGE = Path(webgpu_run.__file__).parent
WHAT_TO_DO = """
wgpu-py changed something private that webgpu_run/gpu/native.py relies on: {name}.
pyproject.toml pins wgpu to one minor version for this reason. To move to a new version, or to repair this one:
  1. diff wgpu/backends/wgpu_native/_api.py and _helpers.py of both versions, and wgpu.h and webgpu.h in wgpu/resources;
  2. adapt native.py, which is the only module to change, and the names in this test;
  3. run tests/test_native.py, tests/test_executor.py and tests/test_decode.py;
  4. move the pin in pyproject.toml.
"""
ATTRIBUTES = (
    ("wgpu.backends.wgpu_native", "ffi"),  # the cffi interface: new, gc, callback, from_buffer, buffer, NULL
    ("wgpu.backends.wgpu_native", "ffi._parser.parse_type"),  # cffi's parser of C types, and what it knows
    ("wgpu.backends.wgpu_native", "ffi._parser._declarations"),
    ("wgpu.backends.wgpu_native", "lib"),  # the C functions and enums
    ("wgpu.backends.wgpu_native._api", "libf"),  # the C functions, with errors raised as exceptions
    ("wgpu.backends.wgpu_native._helpers", "_the_instance"),  # the instance that every adapter comes from
    ("wgpu.backends.wgpu_native.extras", "set_instance_extras"),  # creates it with a choice of backends
)
STRUCTS = (
    "WGPUBufferMapCallbackInfo *",
    "WGPUCommandBuffer[]",
    "WGPUExtent3D *",
    "WGPUSubmissionIndex *",
    "WGPUTexelCopyBufferInfo *",
    "WGPUTexelCopyTextureInfo *",
)


def used_names() -> set[str]:
    """Every C function and enum that native.py names."""
    tree = ast.parse(Path(native.__file__).read_text("utf-8"))
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr.lower().startswith("wgpu")}


@pytest.mark.parametrize(("module", "name"), ATTRIBUTES)
def test_private_attributes_exist(module: str, name: str) -> None:
    try:
        operator.attrgetter(name)(importlib.import_module(module))
    except AttributeError:
        pytest.fail(WHAT_TO_DO.format(name=f"{module}.{name}"))


def test_functions_and_enums_exist() -> None:
    from wgpu.backends.wgpu_native import lib
    from wgpu.backends.wgpu_native._api import libf

    names = used_names()
    assert len(names) >= 20
    for name in sorted(names):
        assert hasattr(lib, name), WHAT_TO_DO.format(name=f"lib.{name}")
        assert not name.startswith("wgpu") or hasattr(libf, name), WHAT_TO_DO.format(name=f"libf.{name}")


def test_structs_exist() -> None:
    from wgpu.backends.wgpu_native import ffi

    text = Path(native.__file__).read_text("utf-8")
    assert set(re.findall(r'new\("(WGPU[^"]+)"', text)) == set(STRUCTS)
    for name in STRUCTS:
        try:
            ffi.typeof(name)
        except CDefError:
            pytest.fail(WHAT_TO_DO.format(name=f"struct {name}"))


def test_types_are_parsed_with_what_they_name(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a device has replaced cffi's parse_type by one that hides all other declarations while it runs."""
    from wgpu.backends.wgpu_native import ffi

    parser, known = ffi._parser, []
    every, parse = parser._declarations, parser._parse
    monkeypatch.setattr(parser, "_parse", lambda text: known.append(set(parser._declarations)) or parse(text))
    parser.parse_type("void(WGPULimits const *, struct WGPUExtent3D *, uint32_t)")
    assert {"typedef WGPULimits", "struct WGPUExtent3D"} <= known[0]
    assert len(known[0]) < 6 < len(every)
    with pytest.raises(CDefError):
        parser.parse_type("WGPUNothing *")
    assert parser._declarations is every


def test_objects_have_their_handle(device: Device) -> None:
    """`_internal` is a C pointer on every kind of object whose handle is taken."""
    handle = device.handle
    texture = device.image(4, 4, 1).texture
    encoder = handle.create_command_encoder()
    objects: dict[str, Any] = {
        "GPUDevice": handle,
        "GPUQueue": handle.queue,
        "GPUBuffer": device.buffer(16),
        "GPUTexture": texture,
        "GPUCommandEncoder": encoder,
        "GPUCommandBuffer": handle.create_command_encoder().finish(),
        "GPUBindGroup": handle.create_bind_group(layout=handle.create_bind_group_layout(entries=[]), entries=[]),
    }
    for name, wrapped in objects.items():
        assert type(wrapped).__name__ == name
        assert repr(getattr(wrapped, "_internal", None)).startswith("<cdata 'struct "), WHAT_TO_DO.format(
            name=f"{name}._internal"
        )


def test_references_that_keep_a_device_alive(device: Device) -> None:
    for wrapped in (device.handle, device.handle.queue):
        name = f"{type(wrapped).__name__}._device"
        assert getattr(wrapped, "_device", None) is device.handle, WHAT_TO_DO.format(name=name)


def test_no_other_module_uses_private_attributes() -> None:
    private = re.compile(r"\._internal\b|_the_instance|\blibf\b|wgpu_native import|\bffi\b|\._helpers\b|\._api\b")
    places = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != Path(native.__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if private.search(line)
    ]
    assert not places, f"only gpu/native.py may use wgpu-py's private attributes: {places}"
