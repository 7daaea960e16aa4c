"""The compiled action, prediction and observables at given order parameters."""
