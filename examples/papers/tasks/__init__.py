"""Data that a theory is tried on."""
