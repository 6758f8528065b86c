"""The package's version, the project's own."""

VERSION = "0.1.0"
