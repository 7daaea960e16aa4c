"""Architectures and layers."""
