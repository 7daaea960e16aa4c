"""Tag the commit that was built and tested, and print how to publish it: python release/tag.py"""

import subprocess
import sys

from checks import ROOT, problems, version_of

# Check again, because files may have changed while the tests ran.
if found := problems(ROOT):
    sys.exit("\n".join(["Not ready for a release:", *found]))
tag = f"v{version_of(ROOT)}"
if tag not in subprocess.run(["git", "-C", ROOT, "tag"], capture_output=True, text=True, check=True).stdout.split():
    subprocess.run(["git", "-C", ROOT, "tag", "--annotate", "--message", f"theorykit {tag[1:]}", tag], check=True)
print(f"{tag} is tagged, and its files are in dist/. These last steps cannot be undone:\n")
print(f"    git push origin {tag}\n    python -m twine upload dist/*")
