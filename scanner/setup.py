"""The extension, which setup.cfg cannot name."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("pubsubd_scanner", ["pubsubd_scanner.pyx"])])
