"""ccstream.torch.Contrastive: every loss of the library with autograd, against ccstream.Loss, open_clip's ClipLoss on two
ranks, and GlobalContrastiveLoss; towers in DDP and FSDP2; accumulation, saved state, positives, samples beyond the batch,
torch.compile."""

import importlib.util
import os
import re
import socket
import sys
import tempfile
import unittest

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    from torch import library
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None

import ccstream
import ccstream.torch as cct

torch.set_num_threads(1)
ROWS, WIDTH, IDS = 6, 8, 60


def names():
    """From the list of the library's rows."""
    with open(os.path.join(os.environ["SRC"], "train/loss/loss_rows.c")) as file:
        rows = re.search(r"#define LOSS_ROW_LIST\(X\)(.*?)\n\n", file.read(), re.S)[1]
    rows = [row.replace("_", "-") for row in re.findall(r"X\((\w+)\)", rows)]
    return [(row.removesuffix("-views"), row.endswith("-views") or row == "simclr") for row in rows
            if not row.endswith("-reference")]


def embeddings(seed, rows=ROWS):
    x = torch.nn.functional.normalize(torch.randn(2 * rows, WIDTH, generator=torch.Generator().manual_seed(seed)))
    return [part.clone().requires_grad_() for part in (x[:rows], x[rows:])]


def make(name, views=False, **options):
    if name.startswith("nuclr") and name != "nuclr-frozen":
        options.setdefault("zeta_freeze_epochs", 0)
    return cct.Contrastive(name, IDS, views=views, max_batch=32, steps_per_epoch=2, epochs=4, **options)


def beyond(loss, ids, seed):
    if not loss.columns.beyond:
        return {}
    at = loss.samples_beyond(ids) if loss.columns.beyond == "named" else (ids.repeat(2, 1) + 1) % IDS
    far = torch.nn.functional.normalize(torch.randn(2, len(ids), WIDTH, generator=torch.Generator().manual_seed(seed)), dim=2)
    return {"carried": (at, far.requires_grad_())}


def state_of(loss):
    return {"step": loss.step, **{name: torch.from_numpy(loss.columns[name].astype("float64")) for name in loss.columns},
            **{name: torch.tensor(value) for name, value in loss.columns.scalars.items()}}


def trained(wrap, rows=slice(None)):
    """The weights of two linear towers after three steps of nuclr on these rows of each batch."""
    torch.manual_seed(5)
    model = torch.nn.ModuleDict({name: torch.nn.Linear(WIDTH, WIDTH, bias=False) for name in ("image", "text")})
    encode = [wrap(model[name]) for name in model]
    loss, optimizer = make("nuclr"), torch.optim.SGD(model.parameters(), lr=0.5)
    for k in range(3):
        x = [torch.nn.functional.normalize(tower(pixels.detach()[rows])) for tower, pixels in zip(encode, embeddings(k))]
        loss(*x, (7 * torch.arange(ROWS) + k)[rows], lr=1e-3).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [getattr(w, "full_tensor", lambda w=w: w)().detach().clone() for w in model.parameters()]


def two_ranks(rank, port, directory):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = {}
    for name in ("clip", "siglip", "nuclr"):
        loss, out = make(name, tau=0.1, temperature="constant") if name == "clip" else make(name), []
        for k in range(3):
            image, text = embeddings(k)
            part = slice(0, (3, 4, 6)[k]) if rank == 0 else slice((3, 4, 6)[k], ROWS)
            image, text = (x.detach()[part].clone().requires_grad_() for x in (image, text))
            value = loss(image, text, (7 * torch.arange(ROWS) + k)[part], lr=1e-3)
            value.backward()
            out.append((value.detach(), image.grad / 2, text.grad / 2))
        results[name] = out, state_of(loss)
    if importlib.util.find_spec("open_clip") is not None:
        from open_clip.loss import ClipLoss
        image, text = (x.detach()[3 * rank : 3 * rank + 3].clone().requires_grad_() for x in embeddings(0))
        value = ClipLoss(local_loss=True, gather_with_grad=True, rank=rank, world_size=2)(image, text, torch.tensor(10.0))
        value.backward()
        value = value.detach()
        dist.all_reduce(value)
        results["open_clip"] = value / 2, image.grad / 2, text.grad / 2
    own = slice(3 * rank, 3 * rank + 3)
    results["ddp"] = trained(torch.nn.parallel.DistributedDataParallel, own)
    if fully_shard is not None:
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        results["fsdp2"] = trained(lambda tower: fully_shard(tower, mesh=mesh), own)
    torch.save(results, os.path.join(directory, f"{rank}.pt"))
    dist.destroy_process_group()


class ContrastiveTest(unittest.TestCase):
    def near(self, a, b, what="", at=1e-5):
        self.assertTrue(torch.allclose(a.double(), b.double(), rtol=at, atol=at, equal_nan=True), f"{what}: {a} {b}")

    def test_gradients_are_those_of_the_library(self):
        for name, views in names():
            with self.subTest(loss=name, views=views):
                loss = make(name, views)
                for k in range(3):
                    image, text = embeddings(k)
                    ids = 7 * torch.arange(ROWS) + k
                    more = beyond(loss, ids, k)
                    same = {key: loss.columns[key] for key in loss.columns}
                    inputs = [image, text, *[more["carried"][1] for _ in more]]
                    value = loss(*inputs[:2], ids, lr=1e-3, update=False, **more)
                    value.backward()
                    # along the direction of the gradient, where the weights of losses with state are constants
                    gradients = [x.grad for x in inputs]
                    for key, before in same.items():
                        self.assertEqual(before.tobytes(), loss.columns[key].tobytes(), key)
                    again = [x.detach().clone().requires_grad_() for x in inputs]
                    if more:
                        more = {"carried": (more["carried"][0], again[2])}
                    value2 = loss(*again[:2], ids, lr=1e-3, **more)
                    (3 * value2).backward()
                    self.assertEqual(value.item(), value2.item())
                    for a, b in zip(gradients, again):
                        self.near(3 * a, b.grad)
                    self.assertGreater(max(g.abs().max() for g in gradients), 1e-6)
                self.assertEqual((loss.step.item(), loss.columns["visits"].max()), (3, 1))

    def test_finite_differences(self):
        """Of losses whose value is what the gradient is of."""
        for name, views in names():
            if make(name, views).columns.beyond or len(make(name, views).columns) > 1:
                continue
            options = {"temperature": "constant", "tau": 0.5} if "temperature" in ccstream.loss_options(name, views=views) else {}
            loss = make(name, views, **options)
            with self.subTest(loss=name, views=views):
                inputs, ids = [x.detach() for x in embeddings(0)], torch.arange(ROWS)
                value = lambda a, b: loss(a, b, ids, lr=1e-3, update=False)
                whole = [x.clone().requires_grad_() for x in inputs]
                value(*whole).backward()
                for which, at in ((0, (1, 2)), (1, (4, 5)), (0, (5, 0))):
                    ends = []
                    for h in (-1e-2, 1e-2):
                        moved = [x.clone() for x in inputs]
                        moved[which][at] += h
                        ends.append(value(*moved).item())
                    self.assertAlmostEqual((ends[1] - ends[0]) / 2e-2, whole[which].grad[at].item(), delta=2e-3)

    def test_losses_with_sums_are_those_of_the_tensors(self):
        for name in cct.LOSSES:
            with self.subTest(loss=name):
                own = {"zeta_freeze_epochs": 0} if name in ("nuclr", "nuclr-noxi") else {}
                a, b = make(name, **own), cct.GlobalContrastiveLoss(name, IDS, steps_per_epoch=2, epochs=4, **own)
                for k in range(6):
                    values = []
                    for loss in (a, b):
                        image, text = embeddings(k)
                        value = loss(image, text, 7 * torch.arange(ROWS) + k % 3, lr=1e-3)
                        value.backward()
                        values.append((value, loss.objective, loss.tau, image.grad, text.grad))
                    for x, y in zip(*values):
                        self.near(x, y, at=3e-5)
                for column in a.columns:
                    self.near(torch.from_numpy(a.columns[column].astype("float64")), b.get_buffer(column), column, 3e-5)

    def test_accumulation_is_one_large_batch(self):
        for name, views in names():
            with self.subTest(loss=name, views=views):
                whole, parts = make(name, views), make(name, views)
                for k in range(2):
                    ids = 7 * torch.arange(ROWS) + k
                    a, b = embeddings(k), embeddings(k)
                    more = beyond(whole, ids, k)
                    whole(*a, ids, lr=1e-3, **more).backward()
                    for j in range(3):
                        rows = slice(2 * j, 2 * j + 2)
                        own = [x.detach().clone() for x in b]
                        for x, y in zip(own, b):
                            x[rows] = y[rows]
                        parts(*own, ids, lr=1e-3, update=j == 2, **more).backward()
                    for x, y in zip(a, b):
                        self.near(x.grad, y.grad, at=1e-6)
                for key, value in state_of(whole).items():
                    self.near(value, state_of(parts)[key], key, 1e-6)

    def test_saved_state_continues(self):
        for name, views in names():
            with self.subTest(loss=name, views=views), tempfile.TemporaryDirectory() as directory:
                loss = make(name, views)
                ids = 7 * torch.arange(ROWS)
                for k in range(3):
                    loss(*embeddings(k), ids + k, lr=1e-3, **beyond(loss, ids + k, k))
                path = os.path.join(directory, "loss.pt")
                torch.save(loss.state_dict(), path)
                again, file = make(name, views), make(name, views)
                again.load_state_dict(torch.load(path, weights_only=True))
                loss.save(os.path.join(directory, "loss.safetensors"), "0123456789abcdef")
                file.load(os.path.join(directory, "loss.safetensors"))
                more = beyond(loss, ids, 9)
                want = loss(*embeddings(9), ids, lr=1e-3, **more)
                for other in (again, file):
                    self.assertEqual(other(*embeddings(9), ids, lr=1e-3, **more), want)
                    self.assertEqual({k: v.nan_to_num(9).tolist() for k, v in state_of(other).items()},
                                     {k: v.nan_to_num(9).tolist() for k, v in state_of(loss).items()})
        with self.assertRaisesRegex(ValueError, "this state belongs to loss"):
            make("clip").load_state_dict(make("sogclr").state_dict())

    def test_all_rows_of_positives_learn(self):
        loss = make("nuclr", positives=2)
        image, text = embeddings(0)
        loss(image, text, torch.tensor([3, 3, 8, 8, 9, 9])).backward()
        for x in (image, text):
            self.assertTrue((x.grad.abs().sum(1) > 1e-6).all())

    def test_precisions_and_eval_leave_the_state(self):
        loss = make("nuclr")
        loss(*embeddings(0), 3 * torch.arange(ROWS)).backward()
        before = state_of(loss)
        loss.bfloat16().eval()
        image, text = (x.detach().bfloat16().requires_grad_() for x in embeddings(1))
        loss(image, text, 3 * torch.arange(ROWS)).backward()
        self.assertEqual(image.grad.dtype, torch.bfloat16)
        for key, value in state_of(loss).items():
            self.assertEqual(before[key].nan_to_num(9).tolist(), value.nan_to_num(9).tolist())

    def test_wrong_calls_are_refused(self):
        image, text = embeddings(0)
        for message, call in (
                ("no loss 'clop'", lambda: make("clop")), ("does not read gamma", lambda: make("clip", gamma=0.5)),
                ("id -1 is not from 0", lambda: make("clip")(image, text, torch.tensor([0, 1, 2, 3, 4, -1]))),
                ("steps_per_epoch and epochs", lambda: cct.Contrastive("nuclr", 9)),
                ("not finite", lambda: make("clip")(image * float("nan"), text, torch.arange(ROWS))),
                ("requires off-batch samples", lambda: make("emc2")(image, text, torch.arange(ROWS)))):
            with self.assertRaisesRegex(ValueError, message):
                call()

    def test_two_ranks_equal_one_and_open_clip(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
            s.close()
            multiprocessing.spawn(two_ranks, (port, directory), nprocs=2)
            ranks = [torch.load(os.path.join(directory, f"{r}.pt")) for r in range(2)]
        for name in ("clip", "siglip", "nuclr"):
            loss = make(name, tau=0.1, temperature="constant") if name == "clip" else make(name)
            for k in range(3):
                image, text = embeddings(k)
                value = loss(image, text, 7 * torch.arange(ROWS) + k, lr=1e-3)
                value.backward()
                steps = [r[name][0][k] for r in ranks]
                for part, want in ((1, image.grad), (2, text.grad)):
                    self.near(torch.cat([step[part] for step in steps]), want, at=1e-6)
                self.near(steps[0][0], value.detach(), at=1e-6)
                if name == "clip" and k == 0 and "open_clip" in ranks[0]:
                    for part, want in ((1, image.grad), (2, text.grad)):
                        self.near(torch.cat([r["open_clip"][part] for r in ranks]), want, at=1e-6)
                    self.near(ranks[0]["open_clip"][0], value.detach(), at=1e-6)
            for r in ranks:
                for key, want in state_of(loss).items():
                    self.near(r[name][1][key], want, key, 1e-6)
        alone = trained(lambda tower: tower)
        for r in ranks:
            for kind in ("ddp", "fsdp2") if fully_shard else ("ddp",):
                for got, want in zip(r[kind], alone):
                    self.near(got, want, kind, 1e-6)

    def test_operators_pass_torchs_own_checks(self):
        loss = make("clip")
        a, b = (x.detach() for x in embeddings(0))
        values = (a, b, torch.arange(ROWS), loss.step, torch.tensor(1e-3, dtype=torch.float64), loss.key, False, None, None)
        library.opcheck(torch.ops.ccstream.loss_step.default, values)
        library.opcheck(torch.ops.ccstream.with_gradients.default,
                              (torch.tensor(1.0), [x.requires_grad_() for x in (a, b)], [2 * a.detach(), 3 * b.detach()]))

    def test_compiled_and_exported_modules_have_no_break(self):
        for name in ("clip", "nuclr"):
            eager, loss = make(name), make(name)
            compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
            for k in range(3):
                values = []
                for call in (eager, compiled):
                    image, text = embeddings(k)
                    value = call(image, text, 7 * torch.arange(ROWS) + k, lr=torch.tensor(1e-3))
                    value.backward()
                    values.append((value, image.grad, text.grad))
                for x, y in zip(*values):
                    self.near(x, y, at=1e-6)
            for key, value in state_of(eager).items():
                self.near(value, state_of(loss)[key], key, 1e-6)
        a, b = (x.detach() for x in embeddings(0))
        loss = make("clip").eval()
        exported = torch.export.export(loss, (a, b, torch.arange(ROWS)))
        self.assertIn("loss_step", "".join(str(m.graph) for m in exported.graph_module.modules()))
        self.near(exported.module()(a, b, torch.arange(ROWS)), loss(a, b, torch.arange(ROWS)), at=1e-6)


if __name__ == "__main__":
    unittest.main()
