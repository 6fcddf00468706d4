"""Tests of sandboxes have their folders on disk."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(folder_on_disk: Path) -> Path:
    """Outside of /dev/shm: Landlock opens that, and bubblewrap makes another one."""
    return folder_on_disk
