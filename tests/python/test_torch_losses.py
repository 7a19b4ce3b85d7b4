"""ccstream.torch: every loss against tests/golden/losses/losses.txt (make_losses.py describes the
lines), embeddings with repeated ids, two ranks against one, saved state, torch.compile, and pixels."""

import math
import os
import socket
import sys
import tempfile
import unittest
import unittest.mock

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)

import ccstream
import ccstream.torch as cct

SOURCE = os.environ["SRC"]
SAMPLES, STEPS, WHOLE = 1000, 3, 5
MASK = (1 << 64) - 1
torch.set_num_threads(1)


class Draws:
    """splitmix64, as make_losses.py draws."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def matrix(self, b, extreme):
        m = torch.tensor([((self.next() >> 51) % 8193 - 4096) / 4096 for _ in range(b * b)]).view(b, b)
        if extreme:
            m = torch.full((b, b), -1.0)
            for i in range(b):
                m[i, (i + 1) % b] = 0.75
                m[i, i] = 1.0
        return m

    def signs(self, shape):
        return torch.tensor([1.0 if self.next() >> 63 else -1.0 for _ in range(math.prod(shape))]).view(shape)


class Golden(cct.GlobalContrastiveLoss):
    """With the step sizes of zeta that the file names, and similarities instead of embeddings."""

    def __init__(self, name, b, zeta_lr, **options):
        if name in ("nuclr", "nuclr-noxi"):
            options = {"zeta_gradient": "paper", "zeta_lr": 1.0} | options
        super().__init__(name, SAMPLES, steps_per_epoch=2, epochs=2, **options)
        self.rate = zeta_lr
        self.unit = torch.eye(b)

    def _zeta_rate(self, side):
        return torch.tensor(self.rate * (0.1 if side == "image" else 1.0), dtype=torch.float64)


def golden_cases():
    with open(os.path.join(SOURCE, "tests/golden/losses/losses.txt")) as file:
        cases = []
        for line in file:
            words = line.split()
            if words[0] == "case":
                cases.append((dict(word.split("=", 1) for word in words[1:]), []))
            else:
                cases[-1][1].append(words)
    return cases


class GoldenTest(unittest.TestCase):
    def near(self, what, got, want, at):
        self.assertLessEqual(abs(got - want), at, f"{what} is {got!r}, not {want!r}")

    def check_step(self, loss, matrix, ids, lines, draws, tolerance):
        """Embeddings whose similarities are `matrix`: rows of it, and the unit matrix."""
        image, text = matrix.clone().requires_grad_(True), loss.unit.clone().requires_grad_(True)
        value = loss(image, text, ids, lr=1e-3)
        value.backward()
        what, want = lines.pop(0)
        self.assertEqual(what, "value")
        self.near("the value", value.item(), float(want), 1e-5 * max(1.0, abs(float(want))))
        gradient = image.grad.double()  # dL/dS, as the texts are the unit matrix
        # and that of the texts is S^T dL/dS
        self.assertTrue(torch.allclose(text.grad.double(), gradient.T @ matrix.double(), rtol=1e-4,
                                       atol=1e-5 * gradient.abs().max().item() * len(ids)))
        what, norm, *projections = lines.pop(0)
        allowed = tolerance * float(norm) + 1e-14 / loss.options["tau"]
        self.near("the gradient's norm", gradient.norm().item(), float(norm), allowed)
        for want in projections:
            self.near("a projection", (draws.signs(gradient.shape) * gradient).sum().item(), float(want), 4 * allowed)
        if len(ids) <= WHOLE:
            elements = torch.tensor([float(x) for x in lines.pop(0)[1:]], dtype=torch.float64).view_as(gradient)
            self.assertTrue(torch.allclose(gradient, elements, rtol=tolerance,
                                           atol=1e-9 * elements.abs().max().item() + 1e-14 / loss.options["tau"]))

    def check_state(self, loss, ids, lines, tolerance):
        for kind, name, *numbers in lines:
            want = torch.tensor([float(x) for x in numbers], dtype=torch.float64)
            got = loss.get_buffer(name) if kind == "scalar" else loss.get_buffer(name)[ids]
            self.assertTrue(torch.allclose(got.double(), want, rtol=tolerance, atol=tolerance),
                            f"{name} is {got}, not {want}")

    def test_losses_are_those_of_the_float64_reference(self):
        for compute in ("float64", "float32"):
            self.check_golden(compute)

    def check_golden(self, compute):
        seen = set()
        for index, (keys, lines) in enumerate(golden_cases()):
            name, b, extreme = keys.pop("loss"), int(keys.pop("b")), keys.pop("extreme", "0") == "1"
            if name not in cct.LOSSES or keys.keys() & {"views", "parity", "positives"}:
                continue
            seen.add(name)
            zeta_lr = float(keys.pop("zeta-lr", 0))
            options = {k.replace("-", "_"): v if not v[0].isdigit() else float(v) for k, v in keys.items()}
            loss = Golden(name, b, zeta_lr, compute=compute, **options)
            ids = torch.tensor([5 + 3 * i for i in range(b)])
            draws = Draws(index)
            with self.subTest(loss=name, b=b, extreme=extreme, compute=compute, **options):
                for k in range(STEPS):
                    # 2^-22 / tau: what the last bit of f32 state does to an exponential
                    tolerance = 1e-6 if k == 0 else 1e-6 + 2**-22 / options["tau"]
                    if compute == "float32":
                        tolerance = 1e-5 + 2**-21 / options["tau"]
                    matrix = draws.matrix(b, extreme and k != 1)
                    draws.matrix(b, False), draws.matrix(b, False)  # of cyclip
                    self.check_step(loss, matrix, ids, lines, draws, tolerance)
                self.check_state(loss, ids, lines, tolerance)
        self.assertEqual(seen, set(cct.LOSSES))


def embeddings(seed, rows, width=8):
    g = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(2 * rows, width, generator=g))
    return x[:rows].clone().requires_grad_(True), x[rows:].clone().requires_grad_(True)


def make(name, **more):
    options = dict(zeta_lr=1e-3, zeta_freeze_epochs=0) if name in ("nuclr", "nuclr-noxi") else {}
    return cct.GlobalContrastiveLoss(name, 100, steps_per_epoch=3, epochs=2, **options, **more)


def states_equal(test, a, b, rtol=0.0, atol=0.0):
    for (name, x), y in zip(a.state_dict().items(), b.state_dict().values()):
        test.assertTrue(torch.allclose(x.double(), y.double(), rtol=rtol, atol=atol, equal_nan=True), name)


RANKED = ("nuclr", "isogclr", "fastclip-v2", "fastclip-v3")
SPLITS = (3, 4, 6, 1)  # rows of rank 0 in each step: of the last ones the other rank has fewer, or none


def ranked_batch(k):
    return *embeddings(k, 6), torch.tensor([4, 9, 9, 30, 2, 4]) if k == 2 else 7 * torch.arange(6) + k


def two_ranks(rank, port, directory):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = {}
    for name in RANKED:
        loss, out = make(name), []
        for k in range(4):
            part = slice(0, SPLITS[k]) if rank == 0 else slice(SPLITS[k], 6)
            image, text, ids = ranked_batch(k)
            image, text = (x.detach()[part].clone().requires_grad_(True) for x in (image, text))
            value = loss(image, text, ids[part], lr=1e-3)
            value.backward()
            value = value.detach()
            dist.all_reduce(value)
            out.append((value / 2, image.grad / 2, text.grad / 2))
        results[name] = out, loss.state_dict(), loss.objective
    torch.save(results, os.path.join(directory, f"{rank}.pt"))
    dist.destroy_process_group()


class Towers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.image, self.text = torch.nn.Linear(5, 8).double(), torch.nn.Linear(7, 8).double()

    def forward(self, x):
        return [torch.nn.functional.normalize(e) for e in (self.image(x[:, :5]), self.text(x[:, 5:]))]


class AccumulationTest(unittest.TestCase):
    """A batch in parts is one large batch: parameters and state after three steps of the optimiser."""

    def train(self, name, step):
        towers, loss = Towers(), make(name)
        optimizer = torch.optim.SGD(towers.parameters(), 1.0)
        for k in range(3):
            x = torch.randn((12, 12), generator=torch.Generator().manual_seed(k), dtype=torch.float64)
            step(towers, loss, x, 5 * torch.arange(12) + k)
            optimizer.step()
            optimizer.zero_grad()
        return towers, loss

    @staticmethod
    def whole(towers, loss, x, ids):
        loss(*towers(x), ids, lr=1e-3).backward()

    @staticmethod
    def checkpointed(towers, loss, x, ids):
        from torch.utils.checkpoint import checkpoint
        parts = [checkpoint(towers, part, use_reentrant=False) for part in x.split(4)]
        loss(*map(torch.cat, zip(*parts)), ids, lr=1e-3).backward()

    @staticmethod
    def as_open_clip(towers, loss, x, ids):
        """open_clip_train/train.py with --accum-freq 3."""
        with torch.no_grad():
            kept = [towers(part) for part in x.split(4)]
        for j, part in enumerate(x.split(4)):
            features = [*kept[:j], towers(part), *kept[j + 1 :]]
            loss(*map(torch.cat, zip(*features)), ids, lr=1e-3, update=j == 2).backward()

    def test_parts_are_one_large_batch(self):
        for name in cct.LOSSES:
            want = self.train(name, self.whole)
            for way in (self.checkpointed, self.as_open_clip):
                with self.subTest(loss=name, way=way.__name__):
                    towers, loss = self.train(name, way)
                    states_equal(self, towers, want[0], 1e-6, 1e-6)
                    states_equal(self, loss, want[1], 1e-6, 1e-6)


class LossTest(unittest.TestCase):
    def test_a_repeated_id_counts_in_its_first_place(self):
        for name in cct.LOSSES:
            with self.subTest(loss=name):
                once, twice = make(name), make(name)
                for k in range(2):
                    image, text = embeddings(k, 5)
                    ids = torch.tensor([3, 8, 1, 90, 4]) + k
                    places = torch.tensor([0, 1, 2, 1, 3, 4, 0])
                    a = once(image, text, ids, lr=1e-3)
                    more = [x.detach()[places].clone() for x in (image, text)]
                    for x in more:
                        x[[3, 6]] = 0.5  # what comes again is another image
                        x.requires_grad_(True)
                    b = twice(*more, ids[places], lr=1e-3)
                    self.assertAlmostEqual(a.item(), b.item(), delta=1e-6 * max(1.0, abs(a.item())))
                    a.backward(), b.backward()
                    self.assertTrue((more[0].grad[[3, 6]] == 0).all())
                    self.assertTrue(torch.allclose(image.grad, more[0].grad[[0, 1, 2, 4, 5]], atol=1e-6))
                states_equal(self, once, twice, 1e-6, 1e-6)

    def test_state_changes_only_for_the_samples_of_a_batch_and_only_in_training(self):
        loss = make("nuclr")
        before = {k: v.clone() for k, v in loss.state_dict().items()}
        loss.eval()
        loss(*embeddings(0, 4), torch.arange(4))
        image, text = embeddings(0, 4)
        loss.train()
        value = loss(image * math.nan, text, torch.arange(4))
        self.assertTrue(math.isnan(value.item()))
        loss(image[:1], text[:1], torch.arange(1)).backward()  # no contrast: nothing but a visit
        self.assertTrue((image.grad == 0).all())
        for name in ("image.log_u", "text.zeta", "text.xi"):
            self.assertTrue(torch.equal(before[name].nan_to_num(-1), loss.state_dict()[name].nan_to_num(-1)), name)
        loss(image, text, torch.tensor([50, 51, 52, 53], dtype=torch.uint64))
        changed = ~torch.isnan(loss.image.log_u)
        self.assertEqual(changed.nonzero().flatten().tolist(), [50, 51, 52, 53])
        self.assertEqual(loss.visits.nonzero().flatten().tolist(), [0, 50, 51, 52, 53])

    def test_saved_state_continues_with_the_same_numbers(self):
        for name in cct.LOSSES:
            with self.subTest(loss=name):
                a, b = make(name), make(name)
                for k in range(6):
                    if k == 2:
                        b.load_state_dict(a.state_dict())
                    values = [loss(*embeddings(k, 5), 3 * torch.arange(5) + k, lr=1e-3).item()
                              for loss in ((a, b) if k >= 2 else (a,))]
                    self.assertEqual(values[0], values[-1])
                states_equal(self, a, b)
                self.assertTrue(math.isfinite(a.objective))

    def test_thirty_steps_are_those_of_the_library(self):
        for name in cct.LOSSES:
            with self.subTest(loss=name):
                loss = cct.GlobalContrastiveLoss(name, 100, id_space=120, steps_per_epoch=6, epochs=5)
                host = ccstream.Loss(name, 100, id_space=120, max_batch=20,
                                     **{"gamma_epochs": 2} if name.startswith("fastclip") else {})
                for k in range(30):
                    image, text = embeddings(k, 20, 64)
                    ids = torch.randperm(120, generator=torch.Generator().manual_seed(k))[:20]
                    ids[7] = ids[3] if k % 5 == 0 else ids[7]
                    rates = {}
                    if name in ("nuclr", "nuclr-noxi"):
                        rates = {f"zeta_lr_{s}": loss._zeta_rate(s).item() for s in ("image", "text")}
                    value = loss(image, text, ids, lr=1e-3)
                    value.backward()
                    step = host.step((image @ text.T).detach().numpy(), ids.numpy(), step=k, epoch=k // 6, lr=1e-3, **rates)
                    near = lambda a, b: self.assertLessEqual(abs(a - b), 1e-5 * max(1, abs(b)))
                    near(value.item(), step.value), near(loss.objective.item(), step.objective)
                    near(loss.tau.item(), step.tau)
                    want = torch.from_numpy(step.gradient) @ text.detach()
                    self.assertTrue(torch.allclose(image.grad, want, rtol=1e-5, atol=1e-5 * want.abs().max().item()))
                for column in host:
                    want = torch.from_numpy(host[column].astype("float64"))
                    self.assertTrue(torch.allclose(loss.get_buffer(column).double(), want, rtol=1e-5, atol=1e-5,
                                                   equal_nan=True), column)

    def test_saved_files_have_the_columns_of_a_checkpoint(self):
        for name in cct.LOSSES:
            with self.subTest(loss=name), tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "state.safetensors")
                loss, again = make(name), make(name)
                for k in range(4):
                    loss(*embeddings(k, 5), 3 * torch.arange(5) + k, lr=1e-3)
                loss.save(path, "0123456789abcdef")
                state = ccstream.State(path)
                self.assertEqual((state.loss, state.step, state.fingerprint), (name, 4, "0123456789abcdef"))
                self.assertTrue(torch.equal(torch.from_numpy(state["image.log_u"]).nan_to_num(9),
                                            loss.image.log_u.nan_to_num(9)))
                again.load(path)
                states_equal(self, loss, again)

    def test_the_schedules_are_those_of_ccstream_train(self):
        peak = 0.00266
        loss = cct.GlobalContrastiveLoss("nuclr", 100, steps_per_epoch=10, epochs=30, zeta_freeze_epochs=5, zeta_lr=peak)
        for step, factor in ((0, 0.0), (49, 0.0), (50, 1.0), (175, 0.5)):
            loss.step.fill_(step)
            self.assertAlmostEqual(loss._zeta_rate("text").item(), peak * factor, places=15)
            self.assertAlmostEqual(loss._zeta_rate("image").item(), peak * factor / 10, places=15)
        loss = cct.GlobalContrastiveLoss("fastclip-v1", 100, steps_per_epoch=10, epochs=8)
        for step, gamma in ((0, 1.0), (9, 1.0), (20, 0.6), (40, 0.2), (79, 0.2)):
            loss.step.fill_(step)
            self.assertAlmostEqual(loss._gamma(loss.step.device).item(), gamma, places=12)

    def test_wrong_options_are_refused(self):
        for message, name, options in (
                ("no loss 'clip'", "clip", {}), ("does not read zeta0", "sogclr", {"zeta0": 0.1}),
                ("does not read rho", "sogclr", {"rho": 3}), ("is not within", "nuclr", {"gamma": 2}),
                ("expected one of", "nuclr", {"xi": "max"}), ("no option tua", "nuclr", {"tua": 1}),
                ("outside its bounds", "isogclr", {"tau": 0.4})):
            with self.assertRaisesRegex(ValueError, message):
                cct.GlobalContrastiveLoss(name, 10, steps_per_epoch=1, epochs=1, **options)
        with self.assertRaisesRegex(ValueError, "steps_per_epoch and epochs"):
            cct.GlobalContrastiveLoss("nuclr", 10)
        loss = make("sogclr", id_space=120)
        for message, ids in (("id -1 is not from 0 to 119: pass id_space", [5, -1, 7]), ("id 120 is not", [5, 120, 7]),
                             ("torch.float32, expected integers", [5.0, 6.0, 7.0])):
            with self.assertRaisesRegex(ValueError, message):
                loss(*embeddings(0, 3), torch.tensor(ids))
        with unittest.mock.patch.object(torch.compiler, "is_compiling", lambda: True), self.assertRaises(IndexError):
            loss(*embeddings(0, 3), torch.tensor([5, -1, 7]))  # as on devices, where ids are not looked at
        with self.assertRaisesRegex(ValueError, "compute is 'float16'"):
            make("sogclr", compute="float16")
        with self.assertRaisesRegex(ValueError, "6 rows of 3 samples: of a repeated id only the first row counts"):
            make("sogclr")(*embeddings(0, 6), torch.tensor([5, 5, 6, 6, 7, 7]))
        with self.assertRaisesRegex(ValueError, "pass lr"):
            make("fastclip-v0")(*embeddings(0, 3), torch.arange(3))
        with self.assertRaisesRegex(ValueError, "expected embeddings"):
            make("sogclr")(*embeddings(0, 3), torch.arange(4))

    def test_other_precisions_leave_the_state(self):
        for name in cct.LOSSES:
            for convert in (lambda m: m.half(), lambda m: m.bfloat16(), lambda m: m.to("cpu", torch.bfloat16),
                            lambda m: m.double(), lambda m: torch.nn.ModuleList([m]).bfloat16()[0]):
                loss = make(name)
                loss(*embeddings(0, 5), 3 * torch.arange(5), lr=1e-3)
                before = {k: v.clone() for k, v in loss.state_dict().items()}
                after = convert(loss).state_dict()
                self.assertEqual([v.dtype for v in before.values()], [v.dtype for v in after.values()])
                states_equal(self, loss, convert(loss))
                self.assertTrue(all(torch.equal(a.nan_to_num(9.0), after[k].nan_to_num(9.0)) for k, a in before.items()))
                image, text = (x.detach().bfloat16().requires_grad_() for x in embeddings(1, 5))
                loss(image, text, 3 * torch.arange(5), lr=1e-3).backward()
                self.assertEqual(image.grad.dtype, torch.bfloat16)
        self.assertEqual(cct.NormalizeOnDevice().half().scale.dtype, torch.float32)
        self.assertEqual(loss.to("meta").image.log_u.device.type, "meta")

    def test_large_batches_take_turns(self):
        for name in RANKED:
            whole, parts = make(name), make(name)
            for k in range(2):
                values = []
                for loss, rows in ((whole, 1 << 24), (parts, 14)):
                    image, text = embeddings(k, 6)
                    with unittest.mock.patch.object(cct, "_MATRIX", rows):
                        value = loss(image, text, 7 * torch.arange(6) + k, lr=1e-3)
                    value.backward()
                    values.append((value, image.grad, text.grad))
                for a, b in zip(*values):
                    self.assertTrue(torch.allclose(a, b, rtol=1e-6, atol=1e-6))
            states_equal(self, whole, parts, 1e-6, 1e-6)

    def test_two_ranks_equal_one(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
            s.close()
            multiprocessing.spawn(two_ranks, (port, directory), nprocs=2)
            ranks = [torch.load(os.path.join(directory, f"{r}.pt")) for r in range(2)]
        for name in RANKED:
            with self.subTest(loss=name):
                loss = make(name)
                for k in range(4):
                    image, text, ids = ranked_batch(k)
                    value = loss(image, text, ids, lr=1e-3)
                    value.backward()
                    steps = [r[name][0][k] for r in ranks]
                    self.assertTrue(torch.allclose(steps[0][0], value, rtol=1e-5, atol=1e-6))
                    self.assertEqual([len(step[1]) for step in steps], [SPLITS[k], 6 - SPLITS[k]])
                    for part, whole in ((1, image.grad), (2, text.grad)):
                        got = torch.cat([step[part] for step in steps])
                        self.assertTrue(torch.allclose(got, whole, rtol=1e-5, atol=1e-6))
                for _, state, objective in (r[name] for r in ranks):
                    for key, want in loss.state_dict().items():
                        self.assertTrue(torch.allclose(state[key], want, rtol=1e-5, atol=1e-6, equal_nan=True), key)
                    self.assertAlmostEqual(objective.item(), loss.objective.item(), places=5)

    @unittest.skipIf(os.environ.get("CCSTREAM_TEST_COMPILE") is None, "slow: set CCSTREAM_TEST_COMPILE=1")
    def test_compiles_whole(self):
        for name in cct.LOSSES:
            with self.subTest(loss=name):
                torch._dynamo.reset()
                eager, loss = make(name), make(name)
                compiled = torch.compile(loss, fullgraph=True)
                for k in range(3):
                    values = []
                    for call in (eager, compiled):
                        image, text = embeddings(k, 6)
                        value = call(image, text, 7 * torch.arange(6) + k, lr=torch.tensor(1e-3))
                        value.backward()
                        values.append((value.item(), image.grad))
                    self.assertAlmostEqual(values[0][0], values[1][0], places=5)
                    self.assertTrue(torch.allclose(values[0][1], values[1][1], rtol=1e-5, atol=1e-6))
                states_equal(self, eager, loss, 1e-6, 1e-6)


class NormalizeTest(unittest.TestCase):
    def test_pixels_are_normalised_into_channels_last(self):
        x = torch.randint(0, 256, (3, 5, 4, 3), dtype=torch.uint8)
        for norm, (mean, deviation) in cct.NORMS.items():
            y = cct.NormalizeOnDevice(norm)(x)
            want = (x.double() / 255 - torch.tensor(mean)) / torch.tensor(deviation)
            self.assertEqual(y.shape, (3, 3, 5, 4))
            self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
            self.assertTrue(torch.allclose(y.double(), want.permute(0, 3, 1, 2), atol=1e-5))
        self.assertEqual(cct.NormalizeOnDevice(dtype=torch.bfloat16)(x).dtype, torch.bfloat16)

    def test_norms_are_those_of_the_header(self):
        import re
        with open(os.path.join(SOURCE, "formats/base/image_norm.h")) as file:
            rows = re.findall(r'\{"(\w+)", \{([^}]*)\}, \{([^}]*)\}\}', file.read())
        numbers = lambda text: tuple(float(x.strip().rstrip("f")) for x in text.split(","))
        self.assertEqual({name: (numbers(m), numbers(d)) for name, m, d in rows}, cct.NORMS)
        with self.assertRaisesRegex(ValueError, "expected one of clip"):
            cct.NormalizeOnDevice("none of them")


if __name__ == "__main__":
    unittest.main()
