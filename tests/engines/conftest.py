"""Tests of real engines. They need a virtual environment with the engines (deploy/test.sh
--engines), and skip without it."""

import os
import pathlib
import random

import pytest

FOLDER = pathlib.Path(os.environ.get("PAGODA_ENGINES", pathlib.Path(__file__).resolve().parents[2] / "build/engines"))


@pytest.fixture(scope="session")
def models():
    """models(name) is the folder of a tiny model."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    import tiny_models

    folder = FOLDER / "models"
    folder.mkdir(parents=True, exist_ok=True)
    return lambda name: tiny_models.make(name, folder)


@pytest.fixture
def prompts():
    """prompts(length, ...) are lists of random tokens, the same in each run."""
    rng = random.Random(1)
    return lambda *lengths: [[rng.randrange(5, 500) for _ in range(length)] for length in lengths]
