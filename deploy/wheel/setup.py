"""Tags the wheel: any Python 3, one platform. The rest is in pyproject.toml."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class ProgramsDistribution(Distribution):
    def has_ext_modules(self):
        return True  # The wheel is for one platform, although it has no extension module.


class BdistWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", self.plat_name  # collect.py wrote the platform into setup.cfg.


setup(distclass=ProgramsDistribution, cmdclass={"bdist_wheel": BdistWheel})
