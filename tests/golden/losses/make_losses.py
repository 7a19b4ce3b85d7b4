#!/usr/bin/env python3
"""Writes losses.txt: every loss over a few steps, computed in float64 by PyTorch.

    pip install torch numpy && python3 make_losses.py >losses.txt
    python3 make_losses.py NAME >>losses.txt     # a new loss, whose cases come last
    python3 make_losses.py 302 >>losses.txt      # cases from this number on, of any loss
    python3 make_losses.py blocks >blocks.txt    # the block loss, of test_curl_block.c

An independent second implementation: plain exponentials (float64 holds exp(600)), gradients by
autograd, state in float64. Similarities are drawn by splitmix64 as multiples of 2^-12, so that the
test makes the same f32 numbers. A line "case KEY=VALUE ..." names what a case sets: loss, b (batch),
extreme, views, parity, away (half of the samples are others in every step, so that emc2's chains
stand outside the batch), and options of ccstream-train; anything else is its default.
tests/unit/train/test_loss_golden.c reads the file.
"""
import math
import sys

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
MASK = (1 << 64) - 1
PROJECTIONS = 4
WHOLE = 5  # matrices of no more rows are written out


class Draws:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def similarity(self):
        return ((self.next() >> 51) % 8193 - 4096) / 4096

    def sign(self):
        return 1.0 if self.next() >> 63 else -1.0


def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011)"""
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


class Uniform:
    """formats/base/rng.h: the stream (seed 0, purpose, a, b)"""

    def __init__(self, purpose, a, b):
        derived = philox((0, 0), (purpose, 0, a & 0xFFFFFFFF, a >> 32))
        self.key, self.word, self.b, self.index, self.left = derived[:2], derived[2], b, 0, []

    def bits(self):
        if not self.left:
            self.left = philox(self.key, (self.index, self.word, self.b & 0xFFFFFFFF, self.b >> 32))
            self.index += 1
        return self.left.pop(0)

    def next(self):
        """In [0, 1), of 53 bits."""
        low = self.bits()
        return ((low | self.bits() << 32) >> 11) * 2.0**-53

    def below(self, n):
        """In [0, n), by Lemire's method."""
        while True:
            product = self.bits() * n
            if product & 0xFFFFFFFF >= (1 << 32) % n:
                return product >> 32


def sample_id(i):
    return 5 + 3 * i


def matrix(draws, b, extreme):
    """extreme: own pairs at 1, the others at -1, but for one hard negative an anchor."""
    m = torch.tensor([[draws.similarity() for _ in range(b)] for _ in range(b)])
    if extreme:
        m = -torch.ones(b, b)
        for i in range(b):
            m[i, i] = 1.0
            m[i, (i + 1) % b] = 0.75
    return m


def self_matrix(draws, b):
    m = matrix(draws, b, False)
    m = torch.triu(m, 1)
    return m + m.T + torch.eye(b)


class Case:
    def __init__(self, name, b, tau, **options):
        self.name, self.b, self.tau = name, b, tau
        self.given = options.copy()
        self.n = 1000
        self.parity = options.pop("parity", False)
        self.extreme = options.pop("extreme", False)
        self.temperature = options.pop("temperature", 0)
        self.views = options.pop("views", False)
        self.m = options.pop("positives", 1)
        self.away = options.pop("away", False)
        self.o = dict(gamma=0.8, tau_plus=0.1, beta=0.5, q=0.1, lam=0.01, self_=0.1, cross=0.1, bias=-10.0,
                      rho=0.0, tau_lr=0.0, theta=0.9, zeta0=-0.05, xi0=0.0, xi="signed", zeta_lr=0.0,
                      unbiased=False, emc2_carry="view")
        self.o.update(options)
        self.columns, self.scalars, self.chains = {}, {}, {}
        self.learned = {}
        self.steps = 0

    # ---- state

    def column(self, name, initial):
        if name not in self.columns:
            self.columns[name] = torch.full((self.b,), float(initial))
        return self.columns[name]

    def adam(self, name, value, gradient, lr):
        m, v = self.learned.get(name, (0.0, 0.0))
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient
        self.learned[name] = (m, v)
        return value - lr * (m / (1 - 0.9**self.steps)) / (math.sqrt(v / (1 - 0.999**self.steps)) + 1e-8)

    def current_tau(self):
        return torch.tensor(self.scalars.get("tau", self.tau), requires_grad=True)

    def learn_tau(self, tau, lr):
        """Adam on log(1/tau)."""
        if self.temperature == 2:
            value = self.adam("scale", -math.log(tau.item()), -tau.item() * tau.grad.item(), lr)
            self.scalars["tau"] = math.exp(-min(max(value, 0.0), -math.log(0.01)))

    def samples(self):
        """Which rows are of one sample, and which are not: m consecutive ones are."""
        sample = torch.arange(self.b) // self.m
        own = (sample[:, None] == sample[None, :]).double()
        return own, 1 - own

    # ---- losses: value with autograd in S (and tau)

    def step(self, s, xx, tt, epoch):
        self.steps += 1
        if self.views:
            return getattr(self, "views_" + self.name)(s, *((epoch,) if self.name == "hcl" else ()))
        return getattr(self, "reference_" + self.name if self.parity else self.name.replace("-", "_"))(s, xx, tt, epoch)

    def clip(self, s, xx, tt, epoch):
        tau = self.current_tau()
        value = self.info_nce(s, tau)
        self.finish(value, tau)
        return value

    def info_nce(self, s, tau):
        value = 0.0
        for m in (s, s.T):
            e = torch.exp(m / tau)
            value = value - 0.5 * torch.log(e.diagonal() / e.sum(1)).mean()
        return value

    def finish(self, value, tau):
        value.backward(retain_graph=True)
        if tau.grad is not None:
            self.learn_tau(tau, self.o["tau_lr"] or 1e-3)

    def cyclip(self, s, xx, tt, epoch):
        tau = self.current_tau()
        value = self.info_nce(s, tau)
        value = value + self.o["self_"] / self.b * ((xx - tt) ** 2).sum()
        value = value + self.o["cross"] / self.b * ((s - s.T) ** 2).sum()
        self.finish(value, tau)
        return value

    def siglip(self, s, xx, tt, epoch):
        tau = self.current_tau()
        bias = torch.tensor(self.scalars.get("bias", self.o["bias"]), requires_grad=True)
        z = 2 * torch.eye(self.b) - 1
        value = torch.nn.functional.softplus(-z * (s / tau + bias), threshold=1000).sum() / self.b
        self.finish(value, tau)
        if self.temperature == 2:
            self.scalars["bias"] = self.adam("bias", bias.item(), bias.grad.item(), self.o["tau_lr"] or 1e-3)
        return value

    def debiased(self, s, beta):
        tau, plus, negatives = self.tau, self.o["tau_plus"], self.b - self.m
        own, others = self.samples()
        value = 0.0
        for m in (s, s.T):
            e = torch.exp(m / tau)
            pos = e.diagonal()
            weight = torch.exp(beta * m / tau) * others
            mean = (weight * e).sum(1) / weight.sum(1)
            ng = (negatives * mean - plus * negatives * (e * own).sum(1) / self.m) / (1 - plus)
            ng = torch.clamp(ng, min=negatives * math.exp(-1 / tau))
            value = value - 0.5 * torch.log(pos / (pos + ng)).mean()
        value.backward()
        return value

    def dcl(self, s, xx, tt, epoch):
        return self.debiased(s, 0.0)

    def beta_at(self, epoch):
        """Robinson et al., "Annealing beta Method": beta_{i+1} = beta_i - beta / l from epoch i e / l on."""
        o = self.o
        beta, e, changes = o["beta"], o.get("beta_epochs"), o.get("beta_stairs", 0)
        for i in range(1, changes + 1):
            if epoch >= i * e / changes:
                beta -= o["beta"] / changes
        return beta

    def hcl(self, s, xx, tt, epoch):
        return self.debiased(s, self.beta_at(epoch))

    def rince(self, s, xx, tt, epoch):
        q, lam, value = self.o["q"], self.o["lam"], 0.0
        for m in (s, s.T):
            e = torch.exp(m / self.tau)
            value = value + 0.5 * (-(e.diagonal() ** q) / q + (lam * e.sum(1)) ** q / q).mean()
        value.backward()
        return value

    def sides(self, s):
        return (("image", "text", s), ("text", "image", s.T))

    def global_step(self, s, individual):
        o, others, value = self.o, 1 - torch.eye(self.b), 0.0
        tau = self.current_tau()
        tau_gradient = 2 * (o["rho"] or 6.5)
        for side, _, m in self.sides(s):
            delta = m - m.diagonal()[:, None]
            taus = self.column(side + ".tau", self.tau) if individual else torch.full((self.b,), tau.item())
            e = torch.exp(delta.detach() / taus[:, None]) * others
            g = e.sum(1) / (self.b - 1)
            u = self.column(side + ".u", math.nan)
            u = torch.where(torch.isnan(u), g, (1 - o["gamma"]) * u + o["gamma"] * g)
            self.columns[side + ".u"] = u
            w = e / (self.b - 1) / u[:, None]
            value = value + (w * delta).sum(1).mean()
            mean = (w * delta.detach()).sum(1) / taus
            tau_gradient += (torch.log(u) - mean).mean().item()
            if individual:
                h = torch.clamp(torch.log(u) + (o["rho"] or 8.0) - mean, -5, 5)
                v = (1 - o["theta"]) * self.column(side + ".tau_gradient", 0.0) + o["theta"] * h
                self.columns[side + ".tau_gradient"] = v
                self.columns[side + ".tau"] = torch.clamp(taus - (o["tau_lr"] or 1e-3) * v, 0.005, 0.05)
        value.backward()
        if self.temperature == 2:
            tau.grad = torch.tensor(tau_gradient)
            self.learn_tau(tau, o["tau_lr"] or 1e-3)
        return value

    def fastclip(self, s, epoch, version):
        """FastCLIP's formulas: means over both sides, gamma by epochs. version 4: SCENT, which is v3 with gamma by anchor."""
        o, others, b = self.o, 1 - torch.eye(self.b), self.b
        tau = self.current_tau()
        scent = version == 4
        version, last, fall, eps = (3, 1.0, 1, o.get("eps", 1e-6)) if scent else (
            version, o["gamma"], o["gamma_epochs"], o.get("eps", 0.0))
        gamma = 1.0 if epoch == 0 else last + (1 - last) / 2 * (1 + math.cos(math.pi * min(epoch / fall, 1.0)))
        value, robust, unscaled = 0.0, (o["rho"] or (11.0 if scent else 6.5)) * tau, 0.0
        for side, _, m in self.sides(s):
            delta = m - m.diagonal()[:, None]
            taus = self.column(side + ".tau", self.tau) if version == 2 else torch.full((b,), tau.item())
            e = torch.exp(delta.detach() / taus[:, None]) * others
            g = e.sum(1) / (b - 1) + eps
            u = self.column(side + ".u", math.nan)
            keep = torch.full((b,), 1 - gamma)
            if scent:  # not 1 - gamma, which rounds to 0
                keep = torch.sigmoid(-o.get("gamma_log_alpha", 10.0) - o.get("gamma_slope", 1.0) * torch.log(u))
            u = torch.where(torch.isnan(u), g, keep * u + (1 - keep) * g)
            self.columns[side + ".u"] = u
            w = e / (b - 1) / u[:, None]
            scale = torch.ones(b) if version == 3 else 1 / taus
            value = value + 0.5 * (scale * (w * delta).sum(1)).mean()
            # What tau is learned on, by autograd: u holds still but in its logarithm.
            pairwise = (torch.exp(delta.detach() / tau) * others).sum(1) / (b - 1) / u
            robust = robust + 0.5 * (tau * torch.log(u) + tau.item() * pairwise).mean()
            unscaled = unscaled + 0.5 * pairwise.mean()
            if version == 2:
                h = torch.log(u) + (o["rho"] or 7.0) - (w * delta.detach()).sum(1) / taus
                h = torch.clamp(h, -5, 5)
                m1 = 0.9 * self.column(side + ".tau_gradient", 0.0) + 0.1 * h
                m2 = 0.999 * self.column(side + ".tau_square", 0.0) + 0.001 * h * h
                self.columns[side + ".tau_gradient"], self.columns[side + ".tau_square"] = m1, m2
                step = m1 / (1 - 0.9**self.steps) / (torch.sqrt(m2 / (1 - 0.999**self.steps)) + 1e-8)
                self.columns[side + ".tau"] = torch.clamp(taus - (o["tau_lr"] or 1e-3) * step, 0.01, 1.0)
        value.backward()
        lr = o["tau_lr"] or 1e-3
        if version == 3:
            tau.grad = torch.autograd.grad(robust, tau)[0]
            self.learn_tau(tau, lr / 3 if tau.item() <= 0.03 else lr)
        elif version == 0:
            tau.grad = torch.autograd.grad(unscaled, tau)[0]
            self.learn_tau(tau, lr)
        return value

    def fastclip_v0(self, s, xx, tt, epoch):
        return self.fastclip(s, epoch, 0)

    def fastclip_v1(self, s, xx, tt, epoch):
        return self.fastclip(s, epoch, 1)

    def fastclip_v2(self, s, xx, tt, epoch):
        return self.fastclip(s, epoch, 2)

    def fastclip_v3(self, s, xx, tt, epoch):
        return self.fastclip(s, epoch, 3)

    def hgcl(self, s, xx, tt, epoch):
        """TuneCLIP's hinged global loss, as the mean of both sides; tau and gamma as fastclip-v3's."""
        o, others, b = self.o, 1 - torch.eye(self.b), self.b
        tau = self.current_tau()
        last, fall = o["gamma"], o["gamma_epochs"]
        gamma = 1.0 if epoch == 0 else last + (1 - last) / 2 * (1 + math.cos(math.pi * min(epoch / fall, 1.0)))
        value, surrogate, robust = 0.0, 0.0, (o["rho"] or 6.5) * tau
        for side, _, m in self.sides(s):
            h = torch.relu(m - m.diagonal()[:, None] + o.get("margin", 0.1))
            e = torch.exp(h.detach() ** 2 / tau.item()) * others
            g = e.sum(1) / (b - 1) + o.get("eps", 0.0)
            u = self.column(side + ".u", math.nan)
            u = torch.where(torch.isnan(u), g, (1 - gamma) * u + gamma * g)
            self.columns[side + ".u"] = u
            w = e / (b - 1) / u[:, None]
            surrogate = surrogate + 0.5 * (w * h * h).sum(1).mean()
            value += 0.5 * (w * h.detach() ** 2).sum(1).mean()
            pairwise = (torch.exp(h.detach() ** 2 / tau) * others).sum(1) / (b - 1) / u
            robust = robust + 0.5 * (tau * torch.log(u) + tau.item() * pairwise).mean()
        surrogate.backward()
        tau.grad = torch.autograd.grad(robust, tau)[0]
        lr = o["tau_lr"] or 1e-3
        self.learn_tau(tau, lr / 3 if tau.item() <= 0.03 else lr)
        return value

    def glofnd(self, s, xx, tt, epoch):
        """GloFND over fastclip-v3: contrasts above a threshold of the anchor count as false negatives."""
        o, b = self.o, self.b
        tau = self.current_tau()
        last, fall, start = o["gamma"], o["gamma_epochs"], o.get("false_negative_start", 15)
        gamma = 1.0 if epoch == 0 else last + (1 - last) / 2 * (1 + math.cos(math.pi * min(epoch / fall, 1.0)))
        value, robust = 0.0, (o["rho"] or 6.5) * tau
        for side, _, m in self.sides(s):
            others = 1 - torch.eye(b)
            threshold = self.column(side + ".threshold", 1.0)
            m1, m2 = self.column(side + ".share_gradient", 0.0), self.column(side + ".share_square", 0.0)
            if epoch >= start:
                t = max(1, self.steps - start)
                above = ((m.detach() > threshold[:, None]) * others).sum(1) / (b - 1)
                h = o.get("false_negative_share", 1e-4) - above
                m1, m2 = 0.9 * m1 + 0.1 * h, 0.98 * m2 + 0.02 * h * h
                step = m1 / (1 - 0.9**t) / (torch.sqrt(m2 / (1 - 0.98**t)) + 1e-8)
                threshold = torch.clamp(threshold - o.get("false_negative_lr", 0.05) * step, -1, 1)
                kept = (m.detach() <= threshold[:, None]) * others
                others = torch.where(kept.sum(1, keepdim=True) > 0, kept, others)
            self.columns[side + ".threshold"] = threshold
            self.columns[side + ".share_gradient"], self.columns[side + ".share_square"] = m1, m2
            count = others.sum(1)
            delta = m - m.diagonal()[:, None]
            e = torch.exp(delta.detach() / tau.item()) * others
            g = e.sum(1) / count + o.get("eps", 0.0)
            u = self.column(side + ".u", math.nan)
            u = torch.where(torch.isnan(u), g, (1 - gamma) * u + gamma * g)
            self.columns[side + ".u"] = u
            w = e / count[:, None] / u[:, None]
            value = value + 0.5 * (w * delta).sum(1).mean()
            pairwise = (torch.exp(delta.detach() / tau) * others).sum(1) / count / u
            robust = robust + 0.5 * (tau * torch.log(u) + tau.item() * pairwise).mean()
        value.backward()
        tau.grad = torch.autograd.grad(robust, tau)[0]
        lr = o["tau_lr"] or 1e-3
        self.learn_tau(tau, lr / 3 if tau.item() <= 0.03 else lr)
        return value

    def scent(self, s, xx, tt, epoch):
        return self.fastclip(s, epoch, 4)

    def sogclr(self, s, xx, tt, epoch):
        return self.global_step(s, False)

    def isogclr(self, s, xx, tt, epoch):
        return self.global_step(s, True)

    def first_xi(self):
        o = self.o
        return max(o["xi0"], abs(o["zeta0"]) if o["xi"] == "norm" else o["zeta0"])

    def next_xi(self, old, zeta):
        """Samples outside the batch are at zeta0 still, which the first xi covers."""
        if self.o["xi"] == "all":  # the workshop's step 10
            return max(self.first_xi(), zeta.max().item())
        if self.o["xi"] == "norm":  # ICLR's line 7
            return max(old, zeta.abs().max().item())
        return max(old, zeta.max().item())

    def nuclr(self, s, xx, tt, epoch, xi_is_own=False, frozen=False):
        o, value, tau, n, b, each = self.o, 0.0, self.tau, self.n, self.b, self.m
        own, others = self.samples()
        for side, contrasts, m in self.sides(s):
            delta = m - m.diagonal()[:, None]
            zeta = self.column(contrasts + ".zeta", o["zeta0"])
            e = torch.exp((delta.detach() - zeta[None, :]) / tau)
            g = (e * others).sum(1) / (b - each)
            u = self.column(side + ".u", math.nan)
            u = torch.where(torch.isnan(u), g, (1 - o["gamma"]) * u + o["gamma"] * g)
            self.columns[side + ".u"] = u
            old = self.scalars.get(contrasts + ".xi", self.first_xi())
            xi = zeta if xi_is_own else torch.full((b,), float(old))
            pairs = torch.exp((delta.detach() - xi[None, :]) / tau) * own / each / (n - 1)
            w = (e * others / (b - each) + pairs) / (u + pairs.sum(1))[:, None]
            value = value + (w * delta).sum(1).mean()
            rate = o["zeta_lr"] * (0.1 if contrasts == "image" else 1.0)
            if rate > 0 and not frozen:
                p = e / ((n - 1) * u + (e * own).sum(1) / each)[:, None]
                if o["unbiased"]:
                    p = p * (own / each + others * (n - 1) / (b - each))
                else:
                    p = p * n / b
                q = 1 - p.sum(0)
                z = self.column(contrasts + ".zeta_momentum", math.nan)
                z = torch.where(torch.isnan(z), q, (1 - o["theta"]) * z + o["theta"] * q)
                self.columns[contrasts + ".zeta_momentum"] = z
                self.columns[contrasts + ".zeta"] = zeta - rate * z
                self.scalars[contrasts + ".xi"] = self.next_xi(old, zeta - rate * z)
        value.backward()
        return value

    def nuclr_frozen(self, s, xx, tt, epoch):
        return self.nuclr(s, xx, tt, epoch, frozen=True)

    def nuclr_noxi(self, s, xx, tt, epoch):
        return self.nuclr(s, xx, tt, epoch, xi_is_own=True)

    # ---- two views: s (2B, 2B), view v of sample i in row v B + i

    def view_terms(self, s):
        """Own pair (2B) of every anchor, and which contrasts are negatives (2B, 2B)."""
        b = self.b
        other = torch.arange(2 * b).roll(b)
        sample = torch.arange(2 * b) % b
        return s[torch.arange(2 * b), other], (sample[:, None] != sample[None, :]).double()

    def views_simclr(self, s):
        tau = self.current_tau()
        own, negative = self.view_terms(s)
        e = torch.exp(own / tau)
        value = -torch.log(e / (e + (torch.exp(s / tau) * negative).sum(1))).mean()
        self.finish(value, tau)
        return value

    def views_debiased(self, s, beta):
        tau, plus, count = self.tau, self.o["tau_plus"], 2 * self.b - 2
        own, negative = self.view_terms(s)
        pos, e = torch.exp(own / tau), torch.exp(s / tau)
        weight = torch.exp(beta * s / tau) * negative
        mean = (weight * e).sum(1) / weight.sum(1)
        ng = torch.clamp((count * mean - plus * count * pos) / (1 - plus), min=count * math.exp(-1 / tau))
        value = -torch.log(pos / (pos + ng)).mean()
        value.backward()
        return value

    def views_dcl(self, s):
        return self.views_debiased(s, 0.0)

    def views_hcl(self, s, epoch):
        return self.views_debiased(s, self.beta_at(epoch))

    def views_rince(self, s):
        q, lam = self.o["q"], self.o["lam"]
        own, negative = self.view_terms(s)
        pos = torch.exp(own / self.tau)
        total = pos + (torch.exp(s / self.tau) * negative).sum(1)
        value = (-(pos**q) / q + (lam * total) ** q / q).mean()
        value.backward()
        return value

    def shared_u(self, g):
        """Each view updates the u that both share; the mean of the two results is kept."""
        u = self.column("image.u", math.nan).repeat(2)
        u = torch.where(torch.isnan(u), g, (1 - self.o["gamma"]) * u + self.o["gamma"] * g)
        self.columns["image.u"] = (u[: self.b] + u[self.b :]) / 2
        return u

    def views_sogclr(self, s):
        own, negative = self.view_terms(s)
        e = torch.exp(s.detach() / self.tau) * negative
        count = 2 * self.b - 2
        u = self.shared_u(e.sum(1) / count)
        value = ((e / count / u[:, None] * s).sum(1) - own).mean()
        value.backward()
        return value

    def views_isogclr(self, s):
        o = self.o
        own, negative = self.view_terms(s)
        taus = self.column("image.tau", self.tau)
        tau = taus.repeat(2)
        delta = s - own[:, None]
        e = torch.exp(delta.detach() / tau[:, None]) * negative
        count = 2 * self.b - 2
        u = self.shared_u(e.sum(1) / count)
        w = e / count / u[:, None]
        value = (w * delta).sum(1).mean()
        h = torch.log(u) + (o["rho"] or 0.4) - (w * delta.detach()).sum(1) / tau
        h = torch.clamp((h[: self.b] + h[self.b :]) / 2, -3, 3)
        v = (1 - o["theta"]) * self.column("image.tau_gradient", 0.0) + o["theta"] * h
        self.columns["image.tau_gradient"] = v
        self.columns["image.tau"] = torch.clamp(taus - (o["tau_lr"] or 1e-3) * v, 0.05, 1.0)
        value.backward()
        return value

    # ---- emc2: plain Metropolis-Hastings with the draws of the C code; scores are kept in f32

    def walk(self, row, places, outside, state, score, draws):
        """The chain's new state and score, and the similarities of the recorded states. A state is a
        place in the row; outside: the places that the sample outside the batch has among proposals."""
        scores = (row.detach() / self.tau).tolist()
        pool, skipped, recorded = places + outside, int(0.5 * len(places)), []
        if state is not None:
            score = torch.tensor(scores[state]).float().item()
        for i, c in enumerate(places):
            if self.o["emc2_carry"] != "skip":
                c = pool[draws.below(len(pool))]
            u = draws.next()
            if math.isnan(score) or math.log(u) < scores[c] - score:
                state, score = c, torch.tensor(scores[c]).float().item()
            if i >= skipped and state is not None:
                recorded.append(row[state])
        return state, score, recorded

    def start(self, side, i, outside):
        """Where the chain of sample i stands, a place or None, and its score."""
        at, score, view = self.chains.setdefault(side, {}).get(self.ids[i], (None, math.nan, 0))
        if at in self.ids:
            return self.ids.index(at) + (view * self.b if self.o["emc2_carry"] == "view" else 0), score
        return (outside if at is not None and self.o["emc2_carry"] != "skip" else None), score

    def keep_chain(self, side, i, state, score, outside):
        at, _, view = self.chains[side].get(self.ids[i], (None, 0, 0))
        if state is not None and state != outside:
            at, view = self.ids[state % self.b], state // self.b
        self.chains[side][self.ids[i]] = (at, score, view)

    def keep_chains(self, side):
        scores = [self.chains[side][i][1] for i in self.ids]
        self.columns[side + ".chain_log_score"] = torch.tensor(scores)

    # ---- negcache: a negative for every anchor, but every fourth

    def with_negative(self, own):
        """own: (2, b), the similarity of each anchor with its own pair."""
        has = (torch.arange(2 * self.b) % 4 != 3).reshape(2, self.b)
        value = ((self.carried - own) * has).sum() / self.tau / (2 * self.b)
        value.backward()
        return value

    def negcache(self, s, xx, tt, epoch):
        return self.with_negative(s.diagonal().expand(2, -1))

    def views_negcache(self, s):
        b = self.b
        return self.with_negative(torch.stack([s[:b, b:].diagonal(), s[b:, :b].diagonal()]))

    def emc2(self, s, xx, tt, epoch):
        b, value = self.b, 0.0
        for index, (side, _, m) in enumerate(self.sides(s)):
            for a in range(b):
                row = torch.cat([m[a], self.carried[index, a : a + 1]])
                draws = Uniform(16, self.steps - 1, 2 * self.ids[a] + index)
                state, score = self.start(side, a, b)
                places, outside = [c for c in range(b) if c != a], [b] if state == b else []
                state, score, recorded = self.walk(row, places, outside, state, score, draws)
                self.keep_chain(side, a, state, score, b)
                if recorded:
                    value = value + 0.5 / b / self.tau * (torch.stack(recorded).mean() - m[a, a])
            self.keep_chains(side)
        value.backward()
        return value

    def views_emc2(self, s):
        b, value = self.b, 0.0
        for i in range(b):
            state, score = self.start("image", i, 2 * b)
            places = [c for c in range(2 * b) if c % b != i]
            outside = [2 * b, 2 * b] if state == 2 * b else []
            for view in range(2):
                a, own = i + view * b, i + (1 - view) * b
                row = torch.cat([s[a], self.carried[view, i : i + 1]])
                draws = Uniform(16, self.steps - 1, 2 * self.ids[i] + view)
                state, score, recorded = self.walk(row, places, outside, state, score, draws)
                if recorded:
                    value = value + 0.5 / b / self.tau * (torch.stack(recorded).mean() - s[a, own])
            self.keep_chain("image", i, state, score, 2 * b)
        self.keep_chains("image")
        value.backward()
        return value

    # ---- the published code

    def reference_sums(self, s, epoch, individual):
        o, others, value, b = self.o, 1 - torch.eye(self.b), 0.0, self.b
        for side, _, m in self.sides(s):
            delta = m - m.diagonal()[:, None]
            taus = self.column(side + ".tau", self.tau) if individual else torch.full((b,), self.tau)
            a = delta.detach() / taus[:, None]
            b_old, s_old = self.column(side + ".b", 0.0), self.column(side + ".s", 0.0)
            b_new = torch.maximum(b_old, a.max(1).values)
            e = torch.exp(a - b_new[:, None]) * others
            g = e.sum(1)
            s_new = g if epoch == 0 else (1 - o["gamma"]) * s_old * torch.exp(b_old - b_new) + o["gamma"] * g
            s_new = s_new.float().double()  # small sums underflow there, and log 0 is bounded below
            self.columns[side + ".b"], self.columns[side + ".s"] = b_new, s_new
            w = e / (s_new + 1e-10)[:, None]
            value = value + (w * delta).sum(1).mean()
            if individual:
                h = torch.log(s_new / (b - 1)) + b_new + (o["rho"] or 8.0) - (w * a).sum(1)
                u = (1 - o["theta"]) * self.column(side + ".tau_gradient", 0.0) + o["theta"] * torch.clamp(h, -5, 5)
                self.columns[side + ".tau_gradient"] = u
                self.columns[side + ".tau"] = torch.clamp(taus - (o["tau_lr"] or 1e-3) * u, 0.005, 0.05)
        value.backward()
        return value

    def reference_sogclr(self, s, xx, tt, epoch):
        return self.reference_sums(s, epoch, False)

    def reference_isogclr(self, s, xx, tt, epoch):
        return self.reference_sums(s, epoch, True)

    def reference_nuclr(self, s, xx, tt, epoch):
        o, others, value, tau, n, b = self.o, 1 - torch.eye(self.b), 0.0, self.tau, self.n, self.b
        if epoch > self.scalars.get("xi_epoch", 0):
            self.scalars["xi_epoch"] = epoch
            for side in ("image", "text"):
                # Ids outside the batch are at zeta0 still.
                self.scalars[side + ".xi"] = max(o["xi0"], o["zeta0"], self.columns[side + ".zeta"].max().item())
        for side, contrasts, m in self.sides(s):
            delta = m - m.diagonal()[:, None]
            zeta = self.column(contrasts + ".zeta", o["zeta0"])
            b_old, s_old = self.column(side + ".b", 0.0), self.column(side + ".s", 0.0)
            b_new = torch.maximum(b_old, delta.detach().max(1).values)
            e = torch.exp((delta.detach() - b_new[:, None] - zeta[None, :]) / tau)
            g = (e * others).sum(1)
            s_old = torch.where(s_old == 0.0, g * torch.exp(b_new - b_old), s_old)
            s_new = (1 - o["gamma"]) * s_old * torch.exp(b_old - b_new) + o["gamma"] * g
            self.columns[side + ".b"], self.columns[side + ".s"] = b_new, s_new
            xi = self.scalars.get(contrasts + ".xi", o["xi0"])
            offset = (b - 1) / (n - 1) * torch.exp(-(xi + b_new) / tau)
            w = e * others / torch.clamp(s_new + offset, min=1e-16)[:, None]
            value = value + (w * delta).sum(1).mean()
            rate = o["zeta_lr"] * (0.1 if contrasts == "image" else 1.0)
            if rate > 0:
                own = torch.exp(-(zeta + b_new) / tau) / (n - 1)
                p = e / torch.clamp(s_new / (b - 1) + own, min=1e-16)[:, None]
                q = 1 - n / (n - 1) * p.mean(0)
                z = self.column(contrasts + ".zeta_momentum", 0.0)
                z = torch.where(z == 0.0, q, z)
                z = (1 - o["theta"]) * z + o["theta"] * q
                self.columns[contrasts + ".zeta_momentum"] = z
                self.columns[contrasts + ".zeta"] = zeta - rate * z
        value.backward()
        return value


def number(x):
    return "%.17g" % x


def print_gradient(what, g, draws):
    projections = []
    for _ in range(PROJECTIONS):
        signs = torch.tensor([[draws.sign() for _ in row] for row in g])
        projections.append((signs * g).sum().item())
    print(what, number(g.norm().item()), *map(number, projections))
    if g.numel() <= WHOLE * WHOLE:
        print("elements", *map(number, g.flatten().tolist()))


TEMPERATURES = ("own", "constant", "global")


def print_case(case):
    """What the case gives, under the names of the options; what it does not name is the default."""
    words = ["loss=" + case.name, "b=%d" % case.b, "tau=%r" % case.tau]
    for key, value in case.given.items():
        if key == "temperature":
            value = TEMPERATURES[value]
        elif key == "parity":
            value = "reference"
        elif key == "unbiased":
            key, value = "zeta_gradient", "unbiased"
        elif value is False:
            continue
        words.append("%s=%s" % (key.replace("_", "-"), 1 if value is True else value))
    print("case", *words)


def run(index, case):
    print_case(case)
    draws = Draws(index)
    for k in range(3):
        rows = 2 * case.b if case.views else case.b
        s = matrix(draws, rows, case.extreme and k != 1).requires_grad_(True)
        xx = self_matrix(draws, case.b).requires_grad_(True)
        tt = self_matrix(draws, case.b).requires_grad_(True)
        case.ids = [sample_id(i + (k * (case.b // 2) if case.away else 0)) for i in range(case.b)]
        case.carried = torch.zeros(2, case.b, requires_grad=True)
        if case.away:
            case.carried = torch.tensor([[draws.similarity() for _ in range(case.b)] for _ in range(2)], requires_grad=True)
        value = case.step(s, xx, tt, k // 2)
        print("value", number(value.item()))
        print_gradient("gradient", s.grad, draws)
        if case.name == "cyclip":
            print_gradient("image_gradient", xx.grad, draws)
            print_gradient("text_gradient", tt.grad, draws)
        if case.away and case.o["emc2_carry"] != "skip":
            print_gradient("carried_gradient", case.carried.grad, draws)
    for name in sorted(case.columns):
        values = case.columns[name]
        if name.endswith(".u"):
            name, values = name[:-1] + "log_u", torch.log(values)
        for pair in range(case.m):
            suffix = ".%d" % (pair + 1) if pair > 0 else ""
            print("column", name + suffix, *map(number, values[pair :: case.m].tolist()))
    for name in sorted(case.chains):
        print("ids", name + ".chain_id", *(case.chains[name][i][0] for i in case.ids))
    for name in sorted(case.scalars):
        value = case.scalars[name]
        if name == "tau":
            name, value = "log_scale", -math.log(value)
        print("scalar", name, number(value))


def block_loss(s, size, negatives, hinge):
    """Arora et al., eq. (12) with k negatives; s (N, N b)."""
    n = s.shape[0]
    means = s.reshape(n, n, size).mean(dim=2)
    v = torch.stack([torch.stack([means[i, i] - means[i, (i + m) % n] for m in range(1, negatives + 1)]) for i in range(n)])
    if hinge:
        return torch.relu(1 + (-v).max(dim=1).values).mean()
    return torch.log2(1 + torch.exp(-v).sum(dim=1)).mean()


def blocks():
    """Similarities of several sizes; pairs: the loss of blocks of 1, for each of the b points."""
    index = 0
    for kind in ("logistic", "hinge"):
        for size in (1, 2, 5):
            for n, negatives in ((3, 1), (6, 4), (6, 5)):
                for pairs in (0, 1) if size > 1 else (0,):
                    for scale in (1, 8):
                        draws = Draws(index)
                        index += 1
                        s = torch.tensor([[scale * draws.similarity() for _ in range(n * size)] for _ in range(n)])
                        s.requires_grad_(True)
                        if pairs:
                            each = [block_loss(s[:, l::size], 1, negatives, kind == "hinge") for l in range(size)]
                            value = torch.stack(each).mean()
                        else:
                            value = block_loss(s, size, negatives, kind == "hinge")
                        value.backward()
                        print("case", kind, n, size, negatives, pairs, scale)
                        print("value", number(value.item()))
                        print("gradient", *("%.9g" % g for g in s.grad.flatten().tolist()))


def own_options(name, b, tau, views=False):
    """What only some losses read, or must ignore."""
    if name in ("dcl", "hcl"):
        options = dict(tau_plus=0.05 if b == 17 else 0.1)
        return dict(options, beta=0.7 if b == 5 else 1.0 if views else 0.5) if name == "hcl" else options
    if name == "rince":
        return dict(q=0.4 if tau >= 0.1 else 0.1)
    if name in ("nuclr", "nuclr-noxi", "nuclr-frozen"):
        return dict(zeta_lr=1e-4)
    if name == "isogclr":
        return dict(tau_lr=1e-3)
    return {}


def main():
    cases = []
    for name in ("clip", "siglip", "cyclip", "dcl", "hcl", "rince", "sogclr", "isogclr", "nuclr", "nuclr-frozen",
                 "nuclr-noxi"):
        options = dict(temperature=2) if name == "siglip" else {}
        for b, tau in ((2, 0.1), (5, 0.3), (5, 0.01), (17, 0.05), (64, 0.01), (64, 0.005), (8, 1.0)):
            for extreme in (False, True):
                if name == "isogclr" and tau > 0.05 or name == "siglip" and tau < 0.01:
                    continue
                cases.append(Case(name, b, tau, extreme=extreme, **options, **own_options(name, b, tau)))
    for name in ("clip", "cyclip", "sogclr"):
        cases.append(Case(name, 6, 0.07, temperature=2, tau_lr=0.01))
    cases.append(Case("siglip", 6, 0.1, temperature=1))
    cases.append(Case("nuclr", 6, 0.05, unbiased=True, zeta_lr=1e-3))
    for name in ("sogclr", "isogclr", "nuclr"):
        for b, tau in ((5, 0.05), (16, 0.01), (64, 0.01)):
            for extreme in (False, True):
                cases.append(Case(name, b, tau, parity=True, extreme=extreme, **own_options(name, b, tau)))
    for name in ("simclr", "dcl", "hcl", "rince", "sogclr", "isogclr"):
        for b, tau in ((2, 0.1), (5, 0.3), (17, 0.07), (32, 0.05), (8, 1.0)):
            for extreme in (False, True):
                cases.append(Case(name, b, tau, views=True, extreme=extreme, **own_options(name, b, tau, True)))
    cases.append(Case("simclr", 6, 0.07, views=True, temperature=2, tau_lr=0.01))
    for views in (False, True):
        for b, tau in ((2, 0.1), (5, 0.3), (17, 0.07), (32, 0.05), (8, 1.0), (16, 0.005)):
            for extreme in (False, True):
                cases.append(Case("emc2", b, tau, views=views, extreme=extreme, emc2_carry="skip"))
    for version in range(4):
        options = dict(temperature=2) if version in (0, 3) else {}
        if version != 1:
            options["tau_lr"] = 0.01
        for b, tau in ((2, 0.1), (5, 0.3), (17, 0.05), (64, 0.01), (32, 0.025), (8, 1.0)):
            for extreme in (False, True):
                cases.append(Case("fastclip-v%d" % version, b, tau, extreme=extreme, gamma=0.2, gamma_epochs=2, **options))
    for xi in ("norm", "all"):
        for b, tau in ((5, 0.3), (17, 0.05), (64, 0.01)):
            for extreme in (False, True):
                for name in ("nuclr", "nuclr-frozen"):
                    cases.append(Case(name, b, tau, extreme=extreme, xi=xi, zeta_lr=1e-2))
    for views in (False, True):
        for stairs in (3, 5):
            cases.append(Case("hcl", 5, 0.07, views=views, beta=1.0, beta_stairs=stairs, beta_epochs=2))
    for m, b, tau in ((2, 4, 0.3), (3, 6, 0.1), (5, 20, 0.05), (4, 32, 0.01)):
        for extreme in (False, True):
            cases.append(Case("dcl", b, tau, extreme=extreme, positives=m, tau_plus=0.2))
    for name in ("nuclr", "nuclr-frozen", "nuclr-noxi"):
        for m, b, tau in ((2, 4, 0.3), (3, 6, 0.1), (5, 20, 0.05), (4, 32, 0.01)):
            for extreme in (False, True):
                cases.append(Case(name, b, tau, extreme=extreme, positives=m, zeta_lr=1e-2))
    cases.append(Case("nuclr", 6, 0.05, positives=2, unbiased=True, zeta_lr=1e-2))
    cases.append(Case("nuclr", 6, 0.05, positives=3, xi="all", zeta_lr=1e-2))
    for views in (False, True):
        for b, tau in ((2, 0.3), (5, 0.3), (12, 0.07), (32, 0.05), (8, 1.0)):
            for away in (False, True):
                cases.append(Case("emc2", b, tau, views=views, away=away))
        for b, tau in ((5, 0.3), (12, 0.07)):
            cases.append(Case("emc2", b, tau, views=views, away=True, emc2_carry="skip"))
    for views in (False, True):
        for b, tau in ((2, 0.1), (5, 0.3), (17, 0.07)):
            cases.append(Case("negcache", b, tau, views=views, away=True))
    for b, tau in ((5, 0.3), (12, 0.07)):
        cases.append(Case("emc2", b, tau, views=True, away=True, emc2_carry="encode"))
    for b, tau in ((2, 0.1), (5, 0.3), (17, 0.05), (64, 0.01), (32, 0.025), (8, 1.0)):
        for extreme in (False, True):
            cases.append(Case("scent", b, tau, extreme=extreme, temperature=2, tau_lr=0.01))
    for b, tau in ((5, 0.3), (17, 0.05)):
        cases.append(Case("scent", b, tau, temperature=1, gamma_log_alpha=-2, eps=1e-3, rho=8.5))
        cases.append(Case("scent", b, tau, temperature=1, gamma_log_alpha=0, gamma_slope=0.03))
        cases.append(Case("scent", b, tau, temperature=1, gamma_log_alpha=1, gamma_slope=0))
        for version in range(4):
            cases.append(Case("fastclip-v%d" % version, b, tau, gamma=0.2, gamma_epochs=2, eps=1e-2,
                              **(dict(temperature=1) if version in (0, 3) else dict(tau_lr=0.01) if version == 2 else {})))
    for b, tau in ((2, 0.1), (5, 0.3), (17, 0.05), (64, 0.01), (32, 0.025), (8, 1.0)):
        for extreme in (False, True):
            cases.append(Case("hgcl", b, tau, extreme=extreme, temperature=2, tau_lr=0.01, gamma=0.2, gamma_epochs=2))
    for margin in (0.8, 1.5):
        cases.append(Case("hgcl", 5, 0.3, margin=margin, temperature=1, gamma=0.4, gamma_epochs=1, eps=1e-2, rho=8.5))
    for b, tau in ((2, 0.1), (5, 0.3), (17, 0.05), (64, 0.01), (32, 0.025), (8, 1.0)):
        for extreme in (False, True):
            cases.append(Case("glofnd", b, tau, extreme=extreme, temperature=2, tau_lr=0.01, gamma=0.2, gamma_epochs=2,
                              false_negative_start=0, false_negative_share=0.2, false_negative_lr=0.3))
    for start in (1, 15):
        cases.append(Case("glofnd", 6, 0.3, temperature=1, gamma=0.4, gamma_epochs=1, eps=1e-2, rho=8.5, false_negative_start=start,
                          false_negative_share=0.1, false_negative_lr=0.9))
    wanted = sys.argv[1] if len(sys.argv) > 1 else "0"
    if wanted == "blocks":
        return blocks()
    for index, case in enumerate(cases):
        if index >= int(wanted) if wanted.isdigit() else case.name == wanted:
            run(index, case)


if __name__ == "__main__":
    sys.exit(main())
