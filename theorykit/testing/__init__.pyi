from .report import Finding, Passed, Report

__all__ = ["Finding", "Passed", "Report"]
