# %% [markdown]
# # Local kernel renormalisation: patches with separate readout weights
#
# Learn how to read one weight per patch from the order parameters of a network with separate readout weights.
#
# A convolutional layer is a network without attention whose tokens are the patches of an image. `read_tokens` gives
# each patch separate readout weights. The order parameter is then a matrix between patches, which depends on the data.
# With shared weights it would be a number. This is the theory of [Aiudi et al.](https://arxiv.org/abs/2307.11807). The
# activation function is an error function, so the theory rests on an ansatz, which assumes a number of examples in
# proportion to the width.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import theorykit
from papers.tasks.digits import handwritten_digits
from papers.tasks.images import cut_into_patches
from theorykit import bpkr
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, save, use_style

theorykit.enable_float64()

# %% [markdown]
# ## Digits in four patches
#
# The digits are threes and eights of 8 x 8 pixels. They differ on the left, most of all at the bottom left.

# %%
digits = handwritten_digits(size=8).of_classes([3, 8])
order = np.random.default_rng(0).permutation(len(digits.pixels))
images, labels = digits.pixels[order].astype(float), np.repeat([1.0, -1.0], digits.counts)[order]
images = (images - images.mean()) / images.std()
patches = cut_into_patches(images, 4)
train, test = slice(0, 60), slice(60, None)


def architecture(width: int) -> bpkr.Architecture:
    return bpkr.Architecture((), width, temperature=0.05, read_tokens=4, embedding="erf")


print(bpkr.render_latex(bpkr.derive(architecture(10))))

# %%
widths, found, errors = (5, 10, 20, 50, 100, 200, 500), [], {"finite": [], "infinite": []}
features = bpkr.path_features(patches, [], architecture(10))
for width in widths:
    arch = architecture(width)
    saddle = bpkr.solve(arch, bpkr.Data(features[train], labels[train]), throw=True)
    found.append(np.asarray(saddle.order_parameters.readout))
    for name, point in (("finite", saddle), ("infinite", bpkr.gp_limit(arch))):
        prediction = bpkr.predict(bpkr.Problem(arch, bpkr.Data(features[train], labels[train])), point, features[test])
        errors[name].append(float(np.mean((prediction.mean - labels[test]) ** 2)))
    print(width, saddle.diagnosis)

# %%
with use_style():
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(8, 2.6), width_ratios=(1.1, 1.3, 1.3))
    shown = left.imshow(found[2], cmap=DIVERGING, vmin=-np.max(found[2]), vmax=np.max(found[2]))
    initials = ("TL", "TR", "BL", "BR")
    left.set(title=f"$U$ at $N = {widths[2]}$", xlabel="patch", ylabel="patch")
    left.set(xticks=range(4), xticklabels=initials, yticks=range(4), yticklabels=initials)
    figure.colorbar(shown, ax=left, shrink=0.7)
    for patch, line in enumerate(("-", "--", "-", "--")):
        name = ("top left (TL)", "top right (TR)", "bottom left (BL)", "bottom right (BR)")[patch]
        middle.plot(widths, [u[patch, patch] for u in found], line, color=(THEORY, *LIMITS)[patch], label=name)
    middle.set(xscale="log", xlabel="channels $N$", ylabel="diagonal of $U$", title="weight of each patch")
    middle.legend()
    right.plot(widths, errors["finite"], "o-", label="saddle point")
    right.plot(widths, errors["infinite"], ":", color=LIMITS[0], label="infinitely wide")
    right.set(xscale="log", xlabel="channels $N$", ylabel="mean square test error", title="test error")
    right.legend()
    save(figure, Path(__file__).with_suffix(".png"))

# %% [markdown]
# ## Conclusion
#
# At 5 channels the weights of the patches range from 0.76 at the bottom right to 1.91 at the bottom left, where the
# digits differ most. At infinite width all weights are one. The test error falls only from 0.205 to 0.201: the order
# parameters show feature learning more clearly than the error.
