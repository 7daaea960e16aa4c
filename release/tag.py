"""Tag the commit that was built and tried, and say how it is published: python release/tag.py"""

import subprocess
import sys

from checks import ROOT, problems, version_of

# again: tests take long enough to change something
if found := problems(ROOT):
    sys.exit("\n".join(["No release:", *found]))
tag = f"v{version_of(ROOT)}"
if tag not in subprocess.run(["git", "-C", ROOT, "tag"], capture_output=True, text=True, check=True).stdout.split():
    subprocess.run(["git", "-C", ROOT, "tag", "--annotate", "--message", f"theorykit {tag[1:]}", tag], check=True)
print(f"{tag} is tagged, and in dist/. What is left, and cannot be taken back:\n")
print(f"    git push origin {tag}\n    python -m twine upload dist/*")
