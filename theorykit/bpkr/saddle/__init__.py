"""The saddle point."""
