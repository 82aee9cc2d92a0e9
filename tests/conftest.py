"""Fixtures that every test file shares."""

from __future__ import annotations

import pytest

from webgpu_run.gpu.device import Device, open_device


@pytest.fixture(scope="session")
def device() -> Device:
    """One device for the whole session: its pipelines are compiled once."""
    return open_device()
