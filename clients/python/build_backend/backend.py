"""setuptools as a build backend. It requires a protobuf compiler if the machine has none."""

import shutil

from setuptools import build_meta
from setuptools.build_meta import *


def _compiler():
    return [] if shutil.which("protoc") else ["grpcio-tools"]


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _compiler()


def get_requires_for_build_sdist(config_settings=None):
    return build_meta.get_requires_for_build_sdist(config_settings) + _compiler()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _compiler()
