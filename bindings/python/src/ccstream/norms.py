"""Channel means and standard deviations for normalising input images."""

from __future__ import annotations

Norm = tuple[tuple[float, float, float], tuple[float, float, float]]

NORMS: dict[str, Norm] = {
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "inception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
"""Of the channels red, green and blue, by name, as formats/base/image_norm.h has them."""


def find_norm(norm: str | Norm) -> Norm:
    """The norm with this name; a pair (mean, std) is returned as floats."""
    if not isinstance(norm, str):
        mean, deviation = (tuple(float(x) for x in numbers) for numbers in norm)
        if len(mean) != 3 or len(deviation) != 3:
            raise ValueError("a norm is (mean, std) with three numbers each")
        return mean, deviation
    if norm not in NORMS:
        raise ValueError(f"no norm {norm!r}: expected one of {', '.join(NORMS)}")
    return NORMS[norm]
