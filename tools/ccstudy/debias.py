"""`ccstream-eval debias`: class vectors without a spurious attribute (Chuang et al., "Debiasing vision-language models via
biased prompts", 2023). With A the embeddings of prompts that describe only the attribute, and S pairs that differ in nothing
but it:

    P0 = I - A (A^T A)^-1 A^T,   P = P0 (I + lambda/|S| sum (z_i - z_j)(z_i - z_j)^T)^-1,   z <- P z / |P z|
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from . import suite, suite_encode, suite_folder, suite_metrics
from .study import (Column, DataError, NotFoundError, Option, Options, Progress, Section, Table, UsageError, axis, figure, np,
                    series, start)

PURPOSE = "classifies by prompts from which a spurious attribute is removed"
TITLE = "Debiased prompts"
USAGE = ["CHECKPOINT --data DIR --spurious FILE --pairs FILE [options]"]
ARGUMENTS = (1, 1)
_REMOTE = [
    Option("endpoint", metavar="URL", group="Remote data", help="server of s3:// locations, as in ccstream-eval zeroshot"),
    Option("instance-metadata", kind=bool, group="Remote data", help="get S3 keys from the instance metadata service"),
    Option("allow-private", kind=bool, group="Remote data", help="allow servers and redirects in private networks"),
    Option("cache", metavar="DIR", group="Remote data", help="cache remote reads of --data in this folder"),
    Option("cache-size", metavar="SIZE", group="Remote data", help="maximum size of that folder"),
]
OPTIONS = [
    Option("data", "d", metavar="DIR", help="dataset packed from class folders named CLASS@GROUP"),
    Option("spurious", metavar="FILE", help="file of prompts that describe only the spurious attribute, one per line; their directions "
                                            "are projected out"),
    Option("pairs", metavar="FILE", help="file with two or more prompts per line, separated by tabs, that differ only in the spurious "
                                         "attribute; each two prompts of a line are a pair"),
    Option("lambda", kind=float, default=1000.0, metavar="X", help="strength with which the two prompts of a pair are equalised; 0: off",
           least=0, most=1e6),
    Option("templates", metavar="FILE", help="prompts of the classes, one per line, with {} for the class name [default: those of "
                                             "ccstream-eval zeroshot]"),
    Option("class-names", metavar="FILE", help="file of lines 'class TAB name' [default: CLASS, with _ replaced by spaces]"),
    Option("queries", metavar="FILE", help="file of texts that should retrieve all GROUPs equally often, one per line; also prints their "
                                           "MaxSkew"),
    Option("top", kind=int, default=1000, metavar="K", help="images retrieved per text of --queries", least=1, most=10**9),
    Option("out", "o", metavar="DIR", help="folder for debias.json and debias.html; created if missing"),
    Option("force", kind=bool, help="also replace files of these names that this command did not write"),
    Option("json", kind=bool, help="print all numbers as JSON"),
    Option("quiet", "q", bool, help="no progress and no table"),
    Option("ema", kind=bool, group="Model", help="use the averaged weights (EMA) of a run with --ema"),
    *(o if o.name != "transform" else Option("transform", default="own", metavar="KIND", choices=o.choices, group="Model",
                                             help="preprocessing of images; described in ccstream-eval zeroshot --help")
      for o in suite.OPTIONS if o.group == "Model"),
    Option("loader-threads", kind=int, default=0, metavar="N", group="Model", help="decode threads; 0: one per CPU", least=0,
           most=1024),
    *_REMOTE,
]
NOTES = [
    "Class vectors z become P z of length 1, with P = P0 (I + lambda/pairs sum (zi - zj)(zi - zj)^T)^-1 and P0 the projection "
    "orthogonal to the spurious prompts (Chuang et al. 2023). Prints the accuracy before and after, over all images and for the worst "
    "group. Requires Python and NumPy.",
    "MaxSkew@K of a text (their table 7.5) is the largest log(r / (1/groups)) over the GROUPs, where r is the GROUP's fraction of the K "
    "most similar images, over all CLASSes; 0 if all groups are retrieved equally often. Prints the mean over --queries, before and after "
    "the projection.",
]
EXAMPLES = ["ccpack -o birds waterbirds   # waterbirds/landbird@land, landbird@water, waterbird@land, ...",
            "ccstream-eval debias runs/a --data birds --spurious backgrounds.txt --pairs birds.tsv --json"]
TEMPLATES = ["{}", "a photo of {}", "a photo of a {}", "an image of the {}", "a close view of a {}", "a {} seen from far away",
             "there is a {} in this image", "a drawing of a {}"]  # of ccstream-eval zeroshot
_NOTHING = 1e-5  # embeddings are f32: what is left of a vector of length 1 below this is rounding


def lines(path: str) -> list[str]:
    """Lines without leading and trailing white space, empty lines, and lines that begin with #."""
    if not Path(path).exists():
        raise NotFoundError(f"{path}: no such file")
    out = [line for line in map(str.strip, suite_folder.read_text(Path(path)).split("\n")) if line and not line.startswith("#")]
    if not out:
        raise DataError(f"{path}: contains no line of text")
    return out


def read_pairs(path: str) -> list[tuple[str, str]]:
    out = []
    for line in lines(path):
        prompts = [p for p in line.split("\t") if p]
        if len(prompts) < 2:
            raise UsageError(f"{path}: '{line[:80]}' is a single prompt; a pair is two prompts separated by a tab")
        out += itertools.combinations(prompts, 2)
    if len(out) > 4096:
        raise UsageError(f"{path}: {len(out)} pairs, more than 4096")
    return out


def project(vectors: Any, spurious: Any, pairs: Any, weight: float) -> Any:
    """vectors (N, D), spurious (A, D), differences of pairs (S, D). A row that is projected to 0 becomes non-finite."""
    v = np.asarray(vectors, np.float64)
    before = np.linalg.norm(v, axis=1)
    if len(pairs) and weight > 0:  # (I + c Z Z^T)^-1 = I - Z (I/c + Z^T Z)^-1 Z^T
        z = np.asarray(pairs, np.float64)
        v = v - np.linalg.solve(z @ z.T + np.eye(len(z)) * len(z) / weight, z @ v.T).T @ z
    if len(spurious):
        _, s, basis = np.linalg.svd(np.asarray(spurious, np.float64), full_matrices=False)
        basis = basis[s > _NOTHING * s[0]]
        for _ in range(2):  # so that rounding does not bring it back
            v = v - v @ basis.T @ basis
    length = np.linalg.norm(v, axis=1)
    length[~(length > _NOTHING * before)] = np.nan
    return (v / length[:, None]).astype(np.float32)


def check(options: Options) -> None:
    if options.data is None:
        raise UsageError("pass --data DATASET, with groups in its classes")
    if options.spurious is None and options.pairs is None:
        raise UsageError("pass --spurious FILE, --pairs FILE or both")
    if options.queries is None and "top" in options.given:
        raise UsageError("--top requires --queries")


def _names(options: Options, classes: list[str]) -> list[str]:
    if options.class_names is None:
        return [c.replace("_", " ") for c in classes]
    named = dict(line.partition("\t")[::2] for line in lines(options.class_names))
    for c in classes:
        if c not in named:
            raise UsageError(f"{options.class_names}: no name for class '{c[:80]}'")
    return [named[c] or c for c in classes]


def _classes(words: list[str]) -> list[str]:
    """The names of a dataset's class folders."""
    with start(["ccdump", "info", "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        out, said = child.communicate()
    if child.returncode:
        raise suite_encode.ChildError((said.strip().splitlines() or ["ccdump failed"])[0],
                                      child.returncode if child.returncode > 0 else 70)
    return json.loads(out).get("classes", [])


def _is_open_clip(path: Path) -> bool:
    """Whether images are cropped as in open_clip: a model of another program, or a checkpoint that records it."""
    if path.is_dir() and not (path / "last").exists():
        return True
    try:
        with (path / "last" if path.is_dir() else path).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return b'"model.open_clip"' in file.read(min(size, 1 << 26))
    except OSError:
        return False  # ccstream-eval embed names what is wrong


def run(options: Options, progress: Progress) -> dict[str, Any]:
    remote = [w for o in _REMOTE if o.name in options.given
              for w in (f"--{o.name}", *([] if o.kind is bool else [getattr(options, o.name.replace("-", "_"))]))]
    folders = _classes([options.data, *remote])
    if not any("@" in f for f in folders):
        raise UsageError(f"{options.data} has no groups; pack class folders named CLASS@GROUP, such as waterbird@land")
    classes = list(dict.fromkeys(f.partition("@")[0] for f in folders))
    spurious = lines(options.spurious) if options.spurious else []
    pairs = read_pairs(options.pairs) if options.pairs else []
    queries = lines(options.queries) if options.queries else []
    templates = lines(options.templates) if options.templates else TEMPLATES
    for t in templates:
        if "{}" not in t and "{c}" not in t:
            raise UsageError(f"{options.templates}: '{t[:80]}' has no {{}} for the class name")
    prompts = [[t.replace("{c}", "{}").replace("{}", name) for t in templates] for name in _names(options, classes)]
    if options.transform == "own":
        options.transform = "clip" if _is_open_clip(Path(options.arguments[0])) else "crop"
    model = suite_encode.Model(options)
    model.words += ["--loader-threads", options.loader_threads, *(["--ema"] if options.ema else [])]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model.embed(work / "e", "--data", options.data, *remote)
        images, labels = (np.load(work / f"e.{n}.npy", allow_pickle=False) for n in ("images", "labels"))
        texts = {p: i for i, p in enumerate(dict.fromkeys(p for some in [*prompts, spurious, queries, *pairs] for p in some))}
        (work / "prompts").write_text("".join(f"{p}\n" for p in texts), "utf-8")
        model.embed(work / "e", "--prompts", work / "prompts")
        vectors = np.load(work / "e.prompts.npy", allow_pickle=False)

    def each(some: list[str]) -> Any:
        return vectors[[texts[p] for p in some]]
    before = np.stack([each(of_class).mean(0) for of_class in prompts])
    before /= np.linalg.norm(before, axis=1, keepdims=True)
    z = each([a for a, _ in pairs]) - each([b for _, b in pairs]) if pairs else []
    removed = (each(spurious) if spurious else [], z, getattr(options, "lambda"))
    after = project(before, *removed)
    empty = np.flatnonzero(~np.isfinite(after).all(1))
    if len(empty):
        raise UsageError(f"removing the spurious directions leaves nothing of '{classes[empty[0]][:80]}'; use fewer")
    own = np.array([classes.index(f.partition("@")[0]) for f in folders])
    kept = (labels >= 0) & (labels < len(folders))
    if not kept.any():
        raise UsageError("no image belongs to a group")
    images, labels = images[kept], labels[kept]
    groups: list[dict[str, Any]] = [{"group": f, "class": classes[own[k]], "images": int((labels == k).sum())}
                                    for k, f in enumerate(folders)]
    result: dict[str, Any] = {}
    for side, v in (("zeroshot", before), ("debiased", after)):
        right = ranks_without_ties(images, v, own[labels])
        for k, g in enumerate(groups):
            if g["images"]:
                g[side] = 100 * float(right[labels == k].mean())
        worst = min((g for g in groups if g["images"]), key=lambda g: g[side])
        result[side] = {"average": 100 * float(right.mean()), "worst_group": worst[side], "worst": worst["group"]}
    if queries:
        result["max_skew"] = _skews(images, [f.partition("@")[2] for f in folders], labels, each(queries), removed, queries,
                                    options.top)
    return result | {"groups": groups, "images": len(images), "classes": len(classes), "spurious": len(spurious),
                     "pairs": len(pairs), "lambda": getattr(options, "lambda")}


def _skews(images: Any, attributes: list[str], labels: Any, vectors: Any, removed: tuple[Any, ...], queries: list[str],
           top: int) -> dict[str, Any]:
    present, groups = np.unique(np.array(attributes)[labels], return_inverse=True)
    if len(present) < 2:
        raise UsageError("--queries requires images of two groups or more")
    sides = {"zeroshot": vectors, "debiased": project(vectors, *removed)}
    skews = {side: max_skew(images, groups, v, top) for side, v in sides.items()}
    left = np.isfinite(skews["debiased"])
    if not left.all():
        raise UsageError(f"removing the spurious directions leaves nothing of '{queries[int(np.argmin(left))][:80]}'; use fewer")
    return {"top": min(top, len(images)), **{side: float(s.mean()) for side, s in skews.items()},
            "queries": [{"text": q, **{side: float(s[i]) for side, s in skews.items()}} for i, q in enumerate(queries)]}


def max_skew(images: Any, groups: Any, vectors: Any, top: int) -> Any:
    """MaxSkew@top of each text (N, D) over images (M, D), whose groups are numbered from 0. Of equally similar images the
    earlier one is retrieved. NaN for a text that is not finite."""
    out = np.full(len(vectors), np.nan)
    count = int(groups.max()) + 1
    for i in np.flatnonzero(np.isfinite(vectors).all(1)):
        found = np.argsort(-(images @ vectors[i]), kind="stable")[:top]
        out[i] = np.log(np.bincount(groups[found], minlength=count).max() / len(found) * count)
    return out


def ranks_without_ties(images: Any, vectors: Any, labels: Any) -> Any:
    """Whether the correct class has the strictly highest score, as ccstream-eval zeroshot counts."""
    right = []
    for part, scores in suite_metrics._blocks(images, vectors):
        own = np.take_along_axis(scores, labels[part][:, None], 1)
        right.append((scores >= own).sum(1) == 1)
    return np.concatenate(right)


def table(result: dict[str, Any]) -> Table:
    rows = [[g["group"], g["class"], g["images"], g.get("zeroshot"), g.get("debiased")] for g in result["groups"]]
    for name, key in (("average", "average"), ("worst_group: ", "worst_group")):
        more = f"{result['debiased']['worst']}" if key == "worst_group" else ""
        rows.append([name + more, "", result["images"], result["zeroshot"][key], result["debiased"][key]])
    if skew := result.get("max_skew"):
        rows.append([f"MaxSkew@{skew['top']}, mean of {len(skew['queries'])}", "", result["images"], skew["zeroshot"],
                     skew["debiased"]])
    return Table([Column("group", "s"), Column("class", "s"), Column("images", "d"), Column("zero-shot", ".2f"),
                  Column("debiased", ".2f")], rows)


def page(result: dict[str, Any], options: Options) -> list[Section]:
    shown = [g for g in result["groups"] if g["images"]]
    lines_ = [series(name, [g["group"] for g in shown], [g[key] for g in shown])
              for name, key in (("zero-shot", "zeroshot"), ("debiased", "debiased"))]
    text = [f"{name}: {result[k]['average']:.2f} % of all images, {result[k]['worst_group']:.2f} % of the worst group, "
            f"{result[k]['worst']}." for name, k in (("Zero-shot", "zeroshot"), ("Debiased", "debiased"))]
    return [Section("Accuracy by group", text, [figure("bars", "Accuracy", axis(""), axis("accuracy", "%"), lines_)])]
