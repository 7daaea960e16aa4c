"""What the parameters of the public callables of testing are."""

from theorykit import testing

from .engine import Face
from .values import Kind, text

FINDING = testing.Finding("the claim", "3.0 instead of 1.0", "a factor")
PASSED = testing.Passed("another claim", "1e-16")

NOTHING = dict.fromkeys(("an empty list", "an empty array"), "a sequence of no entries")
TEXTS = ("a list of text", "an array of text")

FACE = Face(
    testing,
    {
        "check": text("the claim", any_text=True),
        "measured": text("3.0", any_text=True),
        "meaning": text("a factor", any_text=True),
        "subject": text("a layer", any_text=True),
        "findings": Kind(lambda: (FINDING,), NOTHING),
        "passed": Kind(lambda: (PASSED,), NOTHING),
        "left_out": Kind(lambda: ("a check: its reason",), {**NOTHING, **dict.fromkeys(TEXTS, "a sequence of text")}),
    },
)
