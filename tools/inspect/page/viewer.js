/*
 * viewer: draws a page from the JSON in #ccstream-page, whose format README.md defines. Texts only ever become
 * text nodes, and images only data URIs, so nothing in the data can become markup.
 */
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("ccstream-page").textContent);
  const COLOURS = 8;
  const MARKS = ["M-3.5-3.5h7v7h-7z", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M0-5L4.5 3.5h-9z", "M0-5L5 0L0 5L-5 0z",
    "M0 5L4.5-3.5h-9z", "M-4.5-4.5h9l-9 9h9z"];
  const MAP_COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const MARK_ROOM = 12; // pixels per mark of a line; closer points have none

  /* ---- elements ---- */

  function fill(e, attributes, children) {
    for (const name in attributes) {
      if (attributes[name] != null && attributes[name] !== false) e.setAttribute(name, attributes[name]);
    }
    e.append(...children.filter((c) => c != null && c !== ""));
    return e;
  }
  const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  const list = (v) => (Array.isArray(v) ? v : []);
  const scroll = (...children) => el("div", { class: "scroll", tabindex: 0 }, ...children);

  function image(src, alt) {
    return /^data:image\/(jpeg|png|webp|gif);base64,/.test(src) ? el("img", { src, alt: alt || "" }) : null;
  }

  function fold(title, folded, node) {
    return folded ? el("details", {}, el("summary", {}, title), node) : node;
  }

  /* ---- numbers and axes ---- */

  function show(v) {
    if (typeof v !== "number") return v == null ? "" : String(v);
    return Number.isInteger(v) && Math.abs(v) < 1e15 ? String(v) : String(Number(v.toPrecision(5)));
  }
  const label = (axis) => ((axis && axis.title) || "") + (axis && axis.unit ? ", " + axis.unit : "");
  const isLog = (axis) => Boolean(axis) && axis.scale === "log";
  const usable = (v, log) => Number.isFinite(v) && (!log || v > 0);
  const textWidth = (text) => 7 * text.length;

  function linearTicks(low, high, count) {
    const raw = (high - low) / Math.max(count, 1);
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = unit * [1, 2, 5, 10].find((k) => k * unit >= raw * 0.999);
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-6); k * step <= high + step * 1e-6; k++) ticks.push(Number((k * step).toPrecision(12)));
    return ticks;
  }

  function logTicks(low, high, count) {
    const decades = high - low;
    const every = Math.max(1, Math.ceil(decades / count));
    const steps = decades * 3 <= count ? [1, 2, 5] : [1];
    const ticks = [];
    for (let d = Math.ceil(low / every) * every - every; d <= high; d += every) {
      for (const s of steps) ticks.push(Number((s * 10 ** d).toPrecision(12)));
    }
    const inside = ticks.filter((v) => Math.log10(v) >= low - 1e-9 && Math.log10(v) <= high + 1e-9);
    return inside.length > 1 ? inside : linearTicks(10 ** low, 10 ** high, count).filter((v) => v > 0);
  }

  /* Maps values to [from, to]. o.zero: the axis includes 0; o.tight: no room at the ends. */
  function scale(axis, values, from, to, spacing, o) {
    const log = isLog(axis);
    const at = log ? Math.log10 : (v) => v;
    let low = Infinity;
    let high = -Infinity;
    for (const v of values) {
      if (usable(v, log)) {
        low = Math.min(low, at(v));
        high = Math.max(high, at(v));
      }
    }
    if (o.zero && !log) {
      low = Math.min(low, 0);
      high = Math.max(high, 0);
    }
    if (!(high > low)) {
      const middle = Number.isFinite(low) ? low : 0;
      const half = log || middle === 0 ? 0.5 : Math.abs(middle) / 2;
      [low, high] = [middle - half, middle + half];
    }
    const margin = o.tight ? 0 : 0.04 * (high - low);
    const grounded = o.zero && !log;
    low -= grounded && low === 0 ? 0 : margin;
    high += grounded && high === 0 ? 0 : margin;
    const ticks = (log ? logTicks : linearTicks)(low, high, Math.abs(to - from) / spacing);
    return { from, to, log, place: (v) => from + ((to - from) * (at(v) - low)) / (high - low), ticks: ticks.map((v) => [v, show(v)]) };
  }

  /* Names at the middle of equal parts of [from, to], or downwards from `to`; names without room are omitted. */
  function bands(names, from, to, spacing, down) {
    const step = Math.abs(to - from) / Math.max(names.length, 1);
    const every = Math.max(1, Math.ceil(spacing / step));
    return { from, to, step, place: (i) => (down ? to : from) + step * (i + 0.5),
      ticks: names.map((n, i) => [i, n]).filter((t, i) => i % every === 0) };
  }

  /* The categories of the x axis; null: x are numbers. */
  function categoriesOf(f) {
    if (f.x && list(f.x.categories).length > 0) return f.x.categories.map(String);
    const all = list(f.series).flatMap((s) => list(s.x));
    return f.kind === "bars" || all.some((v) => typeof v === "string") ? [...new Set(all.map(String))] : null;
  }

  const shorten = (text) => (text.length > 22 ? text.slice(0, 21) + "\u2026" : text);

  /* The figure with its grid. makeX, makeY: scales over a range of pixels. */
  function canvas(f, width, height, makeX, makeY) {
    const y = makeY(height - 22, 8);
    const left = 12 + Math.min(Math.max(24, ...y.ticks.map((t) => textWidth(shorten(t[1])))), width * 0.45);
    const x = makeX(left, width - 24);
    const g = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": f.title, tabindex: 0 });
    for (const [v, text] of x.ticks) {
      const at = x.place(v);
      g.append(svg("path", { class: "grid-line", d: `M${at} ${y.from}V${y.to}` }),
        svg("text", { x: Math.min(at, width - textWidth(text) / 2), y: y.from + 16, "text-anchor": "middle" }, text));
    }
    for (const [v, text] of y.ticks) {
      const at = y.place(v);
      g.append(svg("path", { class: "grid-line", d: `M${x.from} ${at}H${x.to}` }),
        svg("text", { x: x.from - 6, y: at + 4, "text-anchor": "end" }, shorten(text)));
    }
    return { g, x, y };
  }

  const heightFor = (width) => Math.round(Math.min(Math.max(width * 0.58, 190), 360));
  const colourOf = (s, k) => `color:var(--c${(((s.colour || k + 1) - 1) % COLOURS) + 1})`;

  /* ---- painters: each returns the SVG and the points that can be pointed at ---- */

  function valueText(s, i, axis) {
    let text = show(s.y[i]) + (axis && axis.unit ? " " + axis.unit : "");
    if (list(s.texts)[i]) text += ", " + s.texts[i];
    if (list(s.error)[i] != null) text += " \u00b1 " + show(s.error[i]);
    if (list(s.low)[i] != null && list(s.high)[i] != null) text += ` [${show(s.low[i])}, ${show(s.high[i])}]`;
    return text;
  }

  function errorBar(g, at, low, high, horizontal) {
    g.append(svg("path", { class: "error", d: horizontal ? `M${low} ${at}H${high}` : `M${at} ${low}V${high}` }));
  }

  function paintLines(f, series, width) {
    const names = categoriesOf(f);
    const number = (v) => (names ? names.indexOf(String(v)) : v);
    const ys = series.flatMap((s) => s.y.concat(list(s.low), list(s.high),
      list(s.error).flatMap((e, i) => [s.y[i] - e, s.y[i] + e])));
    const xs = series.flatMap((s) => list(s.x).map(number));
    const { g, x, y } = canvas(f, width, heightFor(width),
      (a, b) => (names ? bands(names, a, b, 60) : scale(f.x, xs, a, b, 80, {})),
      (a, b) => scale(f.y, ys, a, b, 45, {}));
    const hits = [];
    series.forEach((s) => {
      const layer = svg("g", { style: s.style });
      const ok = (i) => usable(number(s.x[i]), x.log);
      const px = (i) => x.place(number(s.x[i])).toFixed(1);
      const py = (v) => (usable(v, y.log) ? y.place(v) : y.from).toFixed(1);
      if (list(s.low).length > 0 && list(s.high).length > 0) {
        const at = s.x.map((v, i) => i).filter((i) => ok(i) && s.low[i] != null && usable(s.high[i], y.log));
        layer.append(svg("path", { class: "band", d: "M" + at.map((i) => `${px(i)} ${py(s.high[i])}`)
          .concat(at.reverse().map((i) => `${px(i)} ${py(s.low[i])}`)).join("L") + "Z" }));
      }
      let d = "";
      let pen = "M";
      const marks = [];
      list(s.x).forEach((v, i) => {
        if (!ok(i) || !usable(s.y[i], y.log)) {
          pen = "M"; // a gap
          return;
        }
        d += `${pen}${px(i)} ${py(s.y[i])}`;
        pen = "L";
        marks.push(i);
        hits.push({ x: Number(px(i)), y: Number(py(s.y[i])), s, head: show(v), text: valueText(s, i, f.y) });
        if (list(s.error)[i] > 0) errorBar(layer, px(i), py(s.y[i] - s.error[i]), py(s.y[i] + s.error[i]), false);
      });
      if (f.kind !== "scatter" || s.dashed) layer.append(svg("path", { class: s.dashed ? "line dashed" : "line", d }));
      if (!s.dashed && (f.kind === "scatter" || marks.length * MARK_ROOM * Math.min(series.length, 2) <= width)) {
        for (const i of marks) {
          layer.append(svg("path", { class: "mark", d: MARKS[s.index % MARKS.length], transform: `translate(${px(i)} ${py(s.y[i])})` }));
        }
      }
      g.append(layer);
    });
    return { g, hits, apart: f.kind === "scatter" };
  }

  /* Vertical where the categories' names have room below them, else horizontal: then one series has its values written
   * at its bars. */
  function paintBars(f, series, width) {
    const names = categoriesOf(f);
    const ys = series.flatMap((s) => s.y.concat(list(s.error).map((e, i) => s.y[i] + e), list(s.error).map((e, i) => s.y[i] - e)));
    const horizontal = f.horizontal || names.some((n) => textWidth(n) + 10 > (width - 70) / names.length);
    const written = horizontal && series.length === 1 && list(series[0].error).length === 0;
    const room = written ? Math.max(...series[0].y.map((v, i) => textWidth(valueText(series[0], i, f.y)))) : 0;
    const value = (a, b) => scale(f.y, ys, a, b - room, horizontal ? 70 : 45, { zero: true });
    const height = horizontal ? 40 + names.length * Math.max(20, 14 * series.length + 6) : heightFor(width);
    const { g, x, y } = horizontal
      ? canvas(f, width, height, value, (a, b) => bands(names, a, b, 1, true))
      : canvas(f, width, height, (a, b) => bands(names, a, b, 1), value);
    const [band, along] = horizontal ? [y, x] : [x, y];
    const ground = along.log ? along.from : along.place(0);
    const hits = [];
    series.forEach((s, k) => {
      const layer = svg("g", { style: s.style });
      const thick = (band.step * 0.8) / series.length;
      s.x.forEach((v, i) => {
        const end = usable(s.y[i], along.log) ? along.place(s.y[i]) : null;
        if (end === null) return;
        const across = band.place(names.indexOf(String(v))) + (k - series.length / 2) * thick;
        const [a, b] = [Math.min(end, ground), Math.abs(end - ground)];
        const middle = across + thick / 2;
        const text = valueText(s, i, f.y);
        layer.append(svg("rect", horizontal ? { class: "bar", x: a, y: across, width: b, height: thick - 1 }
          : { class: "bar", x: across, y: a, width: thick - 1, height: b }));
        if (written) layer.append(svg("text", { class: "value", x: Math.max(end, ground) + 5, y: middle + 4 }, text));
        if (list(s.error)[i] > 0) errorBar(layer, middle, along.place(s.y[i] - s.error[i]), along.place(s.y[i] + s.error[i]), horizontal);
        hits.push(Object.assign({ s, head: String(v), text }, horizontal ? { x: end, y: middle } : { x: middle, y: end }));
      });
      g.append(layer);
    });
    return { g, hits, vertical: horizontal };
  }

  /* x: the bins' edges, one more than y. */
  function paintHistogram(f, series, width) {
    const { g, x, y } = canvas(f, width, heightFor(width),
      (a, b) => scale(f.x, series.flatMap((s) => s.x), a, b, 80, { tight: true }),
      (a, b) => scale(f.y, series.flatMap((s) => s.y), a, b, 45, { zero: true }));
    const hits = [];
    series.forEach((s) => {
      let d = "";
      s.y.forEach((v, i) => {
        const [a, b] = [x.place(s.x[i]), x.place(s.x[i + 1])];
        if (!Number.isFinite(a) || !Number.isFinite(b)) return;
        const top = usable(v, y.log) ? y.place(v) : y.from;
        d += (d === "" ? `M${a} ${y.from}` : "") + `L${a} ${top}L${b} ${top}` + (i === s.y.length - 1 ? `L${b} ${y.from}Z` : "");
        hits.push({ x: (a + b) / 2, y: top, s, head: `${show(s.x[i])} to ${show(s.x[i + 1])}`, text: valueText(s, i, f.y) });
      });
      g.append(svg("g", { style: s.style }, svg("path", { class: "outline", d })));
    });
    return { g, hits };
  }

  /* Areas on top of each other; all series have the same x. */
  function paintArea(f, series, width) {
    const base = list(series[0] && series[0].x).map(() => 0);
    const tops = series.map((s) => base.map((sum, i) => (base[i] = sum + (s.y[i] || 0))));
    const { g, x, y } = canvas(f, width, heightFor(width),
      (a, b) => scale(f.x, series.flatMap((s) => s.x), a, b, 80, { tight: true }),
      (a, b) => scale(f.y, tops.flat(), a, b, 45, { zero: true, tight: true }));
    const hits = [];
    series.forEach((s, k) => {
      const line = (heights) => s.x.map((v, i) => `${x.place(v).toFixed(1)} ${y.place(heights ? heights[i] : 0).toFixed(1)}`);
      g.append(svg("g", { style: s.style }, svg("path", { class: "area", d: "M" + line(tops[k]).concat(line(tops[k - 1]).reverse()).join("L") + "Z" })));
      s.x.forEach((v, i) => hits.push({ x: x.place(v), y: y.place(tops[k][i]), s, head: show(v), text: valueText(s, i, f.y) }));
    });
    return { g, hits };
  }

  /* Distributions one above the other; the first series at the top. */
  function paintRidges(f, series, width) {
    const overlap = 1.6;
    const height = 60 + 34 * series.length;
    const { g, x, y } = canvas(f, width, height,
      (a, b) => scale(f.x, series.flatMap((s) => [s.low, s.low + s.width * s.y.length]), a, b, 80, {}),
      (a, b) => {
        const row = (a - b) / (series.length - 1 + overlap);
        return { from: a, to: b, row, place: (i) => a - row * (series.length - 1 - i), ticks: series.map((s, i) => [i, show(s.label)]) };
      });
    const hits = [];
    series.forEach((s, k) => {
      const most = Math.max(...s.y, 1e-300);
      const at = (i) => x.place(s.low + s.width * i);
      let d = `M${at(0)} ${y.place(k)}`;
      s.y.forEach((v, i) => {
        const top = y.place(k) - (overlap * y.row * v) / most;
        d += `L${at(i)} ${top}L${at(i + 1)} ${top}`;
        hits.push({ x: (at(i) + at(i + 1)) / 2, y: (top + y.place(k)) / 2, s, head: `${f.label} ${show(s.label)}`,
          text: `${show(s.low + s.width * i)} to ${show(s.low + s.width * (i + 1))}: ${show(v)} ${(f.y && f.y.unit) || ""}` });
      });
      d += `L${at(s.y.length)} ${y.place(k)}Z`;
      g.append(svg("path", { class: "backing", d }), svg("path", { class: "ridge", d, "fill-opacity": 0.35 + (0.5 * (k + 1)) / series.length }));
    });
    return { g, hits, apart: true };
  }

  function mapColour(share) {
    const at = Math.min(Math.max(share, 0), 1) * (MAP_COLOURS.length - 1);
    const k = Math.min(Math.floor(at), MAP_COLOURS.length - 2);
    return `rgb(${MAP_COLOURS[k].map((c, i) => Math.round(c + (MAP_COLOURS[k + 1][i] - c) * (at - k))).join()})`;
  }

  function paintMap(f, series, width) {
    const [x0, x1, y0, y1] = f.extent;
    const [low, high] = f.range;
    const tight = { tight: true };
    const { g, x, y } = canvas(f, width, Math.round(Math.min(width, 420)),
      (a, b) => scale(f.x, [x0, x1], a, b, 80, tight), (a, b) => scale(f.y, [y0, y1], a, b, 45, tight));
    const cells = el("canvas", { width: list(f.rows[0]).length, height: f.rows.length });
    const context = cells.getContext("2d");
    f.rows.forEach((row, r) => row.forEach((v, c) => {
      context.fillStyle = mapColour((v - low) / (high - low));
      if (v != null) context.fillRect(c, r, 1, 1);
    }));
    g.append(svg("image", { href: cells.toDataURL(), x: x.from, y: y.to, width: x.to - x.from, height: y.from - y.to,
      preserveAspectRatio: "none", class: "map" }));
    const hits = [];
    f.rows.forEach((row, r) => row.forEach((v, c) => {
      const at = [x0 + ((c + 0.5) * (x1 - x0)) / row.length, y1 - ((r + 0.5) * (y1 - y0)) / f.rows.length];
      hits.push({ x: x.place(at[0]), y: y.place(at[1]), head: `${show(at[0])}, ${show(at[1])}`, text: `${show(v)} ${f.unit || ""}` });
    }));
    return { g, hits, apart: true };
  }

  const PAINTERS = { lines: paintLines, scatter: paintLines, bars: paintBars, histogram: paintHistogram, area: paintArea,
    ridges: paintRidges, map: paintMap };

  /* ---- figures ---- */

  function tableOf(f) {
    if (f.kind === "map") {
      return { columns: list(f.rows[0]).map((v, i) => ({ name: String(i) })), rows: f.rows };
    }
    if (f.kind === "ridges") {
      return { columns: [f.label, label(f.x) + " from", "to", "value"].map((name) => ({ name })),
        rows: f.series.flatMap((s) => s.y.map((v, i) => [s.label, s.low + s.width * i, s.low + s.width * (i + 1), v])) };
    }
    const rows = new Map();
    const columns = [{ name: label(f.x) + (f.kind === "histogram" ? " from" : "") }];
    f.series.forEach((s) => {
      const extra = ["error", "low", "high", "texts"].filter((name) => list(s[name]).length > 0);
      const first = columns.length;
      columns.push({ name: s.name || label(f.y) }, ...extra.map((name) => ({ name: name === "texts" ? "" : name })));
      const seen = new Map(); // a point may occur again
      list(s.y).forEach((v, i) => {
        const n = seen.get(s.x[i]) || 0;
        seen.set(s.x[i], n + 1);
        const key = `${s.x[i]} ${n}`;
        if (!rows.has(key)) rows.set(key, [s.x[i]]);
        [v, ...extra.map((name) => s[name][i])].forEach((cell, k) => { rows.get(key)[first + k] = cell; });
      });
    });
    const all = [...rows.values()];
    return { columns, rows: all.every((r) => typeof r[0] === "number") ? all.sort((a, b) => a[0] - b[0]) : all };
  }

  /* Shows the values nearest to a place of the figure. */
  function pointAt(state, tip, x, y) {
    const { g, hits, apart, vertical } = state;
    const far = apart ? (h) => Math.hypot(h.x - x, h.y - y) : vertical ? (h) => Math.abs(h.y - y) : (h) => Math.abs(h.x - x);
    const nearest = hits.reduce((a, b) => (far(b) < far(a) ? b : a), hits[0]);
    if (!nearest) {
      tip.textContent = "no values";
      return;
    }
    const chosen = new Map();
    for (const h of hits) {
      const known = chosen.get(h.s);
      const near = apart ? h === nearest : h.head === nearest.head || Math.abs(h.x - nearest.x) < 8;
      if (near && (!known || far(h) < far(known))) chosen.set(h.s, h);
    }
    const old = g.querySelector(".cursor");
    if (old) old.remove();
    g.append(svg("g", { class: "cursor" }, apart || vertical ? null : svg("path", { d: `M${nearest.x} 8V${g.viewBox.baseVal.height - 22}` }),
      ...[...chosen.values()].map((h) => svg("circle", { cx: h.x, cy: h.y, r: 5 }))));
    tip.replaceChildren(el("b", {}, (state.xLabel && !apart ? state.xLabel + " " : "") + nearest.head),
      ...[...chosen.values()].map((h) => el("div", {},
        h.s && h.s.style ? el("i", { class: "swatch", style: h.s.style }) : null, (h.s && h.s.name ? h.s.name + ": " : "") + h.text)));
    tip.hidden = false;
    const box = g.getBoundingClientRect();
    const at = (nearest.x / g.viewBox.baseVal.width) * box.width;
    tip.style.left = `${Math.max(0, at + 14 + tip.offsetWidth > box.width ? at - tip.offsetWidth - 14 : at + 14)}px`;
    tip.style.top = `${Math.max(0, Math.min((nearest.y / g.viewBox.baseVal.height) * box.height - 12, box.height - tip.offsetHeight))}px`;
    state.at = nearest.x;
  }

  function unpoint(state, tip) {
    tip.hidden = true;
    const cursor = state.g && state.g.querySelector(".cursor");
    if (cursor) cursor.remove();
  }

  function legendOf(f, series, redraw) {
    if (series.length < 2 || f.kind === "ridges") return null;
    return el("div", { class: "legend" }, ...series.map((s) => {
      const drawn = f.kind === "lines" || f.kind === "scatter";
      const key = svg("svg", { viewBox: "0 0 26 12", style: s.style, "aria-hidden": true },
        f.kind === "scatter" && !s.dashed ? null : drawn ? svg("path", { class: s.dashed ? "line dashed" : "line", d: "M0 6H26" }) : svg("rect", { class: "bar", x: 7, width: 12, height: 12 }),
        drawn && !s.dashed ? svg("path", { class: "mark", d: MARKS[s.index % MARKS.length], transform: "translate(13 6)" }) : null);
      const b = el("button", { type: "button", "aria-pressed": "true", title: "show or hide" }, key, s.name || "");
      b.onclick = () => {
        s.hidden = !s.hidden;
        b.setAttribute("aria-pressed", String(!s.hidden));
        redraw();
      };
      return b;
    }));
  }

  function mapLegend(f) {
    const stops = MAP_COLOURS.map((c) => `rgb(${c.join()})`).join();
    return el("div", { class: "scale" }, show(f.range[0]), el("i", { style: `background:linear-gradient(90deg,${stops})` }),
      show(f.range[1]) + (f.unit ? " " + f.unit : ""));
  }

  function figure(f) {
    let width = 0;
    let state = { hits: [] };
    const series = list(f.series).map((s, index) => ({ ...s, index, style: colourOf(s, index) }));
    const [xTitle, yTitle] = [el("div", { class: "axis x" }), el("div", { class: "axis" })];
    const tip = el("div", { class: "tip", hidden: true, role: "status" });
    const other = [...new Set(series.flatMap((s) => Object.keys(s.also || {})))].filter((name) => series.every((s) => list((s.also || {})[name]).length === s.x.length));
    const choice = el("select", { class: "also", "aria-label": "x axis" }, ...[label(f.x), ...other].map((name) => el("option", {}, name)));
    const steps = series.map((s) => s.x);
    const xAxis = f.x;
    choice.onchange = () => {
      const name = other[choice.selectedIndex - 1];
      series.forEach((s, i) => { s.x = name ? s.also[name] : steps[i]; });
      f = { ...f, x: name ? { title: name } : xAxis, series };
      draw();
      if (numbers.childElementCount > 1) numbers.lastChild.replaceWith(table(tableOf(f)));
    };
    const plot = el("div", { class: "plot" }, tip);
    const draw = () => {
      const old = plot.querySelector("svg");
      if (old) old.remove();
      state = PAINTERS[f.kind](f, series.filter((s) => !s.hidden), width);
      state.xLabel = f.kind === "bars" ? "" : f.x && f.x.title;
      plot.prepend(state.g);
      const [below, above] = f.kind === "ridges" ? [label(f.x), f.label] : [label(f.x), label(f.y)];
      [xTitle.textContent, yTitle.textContent] = state.vertical ? [above, below] : [below, above];
    };
    new ResizeObserver(() => {
      const now = Math.floor(plot.clientWidth);
      if (now > 0 && now !== width) {
        width = now;
        unpoint(state, tip);
        draw();
      }
    }).observe(plot);
    plot.onpointermove = plot.onpointerdown = (e) => {
      if (!state.g) return;
      const box = state.g.getBoundingClientRect();
      pointAt(state, tip, ((e.clientX - box.left) / box.width) * width, ((e.clientY - box.top) / box.height) * state.g.viewBox.baseVal.height);
    };
    plot.onpointerleave = () => unpoint(state, tip);
    plot.addEventListener("focusout", () => unpoint(state, tip));
    plot.onkeydown = (e) => { // arrows go to the next point
      const sign = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      const xs = state.hits.map((h) => h.x).filter((x) => state.at == null || sign * (x - state.at) > 1).sort((a, b) => sign * (a - b));
      if (!sign || state.vertical || xs.length === 0) return;
      e.preventDefault();
      pointAt(state, tip, xs[0], state.hits.find((h) => h.x === xs[0]).y);
    };
    const numbers = el("details", { class: "numbers" }, el("summary", {}, "Table"));
    numbers.ontoggle = () => {
      if (numbers.open && numbers.childElementCount === 1) numbers.append(table(tableOf(f)));
    };
    return el("figure", { class: "chart", "data-kind": f.kind }, el("figcaption", {}, f.title),
      f.kind === "map" ? mapLegend(f) : legendOf(f, series, draw),
      yTitle, plot, other.length > 0 ? choice : xTitle,
      f.note ? el("p", { class: "note" }, f.note) : null, numbers);
  }

  /* ---- tables, images, texts ---- */

  const numeric = (text) => (/^[-+]?[\d.,]+(e[-+]?\d+)?(\s*(%|[a-zA-Z/]{1,9}))?$/.test(text) ? parseFloat(text.replace(/,/g, "")) : NaN);
  const keyOf = (cell) => (typeof cell === "number" ? cell : typeof cell === "string" ? numeric(cell.trim().split(/\s*[\u00b1(]/)[0]) : NaN);

  function compare(a, b) {
    const [x, y] = [keyOf(a), keyOf(b)];
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return show(a).localeCompare(show(b));
  }

  function table(t) {
    const rows = t.rows.slice();
    const empty = (cell) => cell == null || cell === "";
    const right = t.columns.map((c, k) => (c.align ? c.align === "right" : rows.every((r) => empty(r[k]) || !Number.isNaN(keyOf(r[k])))));
    const body = el("tbody");
    const write = () => body.replaceChildren(...rows.map((r) => el("tr", {}, ...t.columns.map((c, k) =>
      el("td", { class: right[k] ? "right" : null }, r[k] && r[k].image ? image(r[k].image, r[k].text) : show(r[k]))))));
    const heads = t.columns.map((c, k) => {
      const b = el("button", { type: "button", title: "sort" }, c.name + (c.unit ? ", " + c.unit : ""));
      const head = el("th", { scope: "col", class: right[k] ? "right" : null }, b);
      b.onclick = () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        rows.sort((p, q) => (empty(p[k]) || empty(q[k]) ? empty(p[k]) - empty(q[k]) : sign * compare(p[k], q[k])));
        write();
      };
      return head;
    });
    write();
    return scroll(el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body));
  }

  /* Any JSON value on one line; a name that ends in _bytes is a size. */
  function plain(v, name) {
    if (/_bytes$/.test(name) && v >= 1024) {
      const k = Math.min(Math.floor(Math.log2(v) / 10), 5);
      return (v / 1024 ** k).toFixed(1) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][k];
    }
    return v === true ? "yes" : v === false ? "no"
      : Array.isArray(v) ? v.map((one) => plain(one)).join(" ")
      : v && typeof v === "object" ? Object.entries(v).map(([k, one]) => `${k} ${plain(one, k)}`).join(", ") : show(v);
  }

  function facts(rows) {
    return el("dl", {}, ...rows.map(([name, value]) =>
      el("div", {}, el("dt", {}, name.replace(/_bytes$/, "").replaceAll("_", " ")), el("dd", {}, plain(value, name)))));
  }

  /* How a run was made. */
  function run(f) {
    const { command, datasets, val, pid, ...machine } = f.launch || {};
    const word = (w) => (/^[\w%+,./:=@-]+$/.test(w) ? w : `'${String(w).replaceAll("'", "'\\''")}'`);
    const used = list(datasets).map((d) => ["training", d]).concat(val ? [["retrieval", val]] : []);
    const keys = ["directory", "fingerprint", "samples", "captions"];
    return el("div", {}, ...(f.launch ? [el("pre", {}, list(command).map(word).join(" ")),
      table({ columns: ["dataset for", ...keys].map((name) => ({ name })), rows: used.map(([use, d]) => [use, ...keys.map((k) => d[k])]) }),
      facts(Object.entries(machine))] : [el("p", { class: "note" }, "Its command and machine were not recorded: there is no sessions.jsonl.")]),
      f.options ? fold("All options", true, facts(Object.entries(f.options))) : null);
  }

  /* Recalls as metrics.jsonl has them. */
  function retrieval(f) {
    const v = f.values || {};
    const cuts = Object.keys(v).map((k) => /^t2i_r(\d+)$/.exec(k)).filter(Boolean).map((m) => Number(m[1]));
    const row = (name, of) => [name, ...cuts.map((k) => of(k).toFixed(1) + " %")];
    return el("div", {}, table({ columns: ["", ...cuts.map((k) => "R@" + k)].map((name) => ({ name })), rows: [
      row("caption finds image", (k) => v["t2i_r" + k]), row("image finds caption", (k) => v["i2t_r" + k]),
      row("chance", (k) => 100 * Math.min(k / v.images, 1))] }),
      el("p", { class: "note" }, `${v.images} images, ${v.texts} captions`));
  }

  function line(l) {
    return typeof l === "string" ? el("div", { class: "soft" }, l) : el("div", { class: l.mark }, l.mark === "right" ? "\u2713 " : l.mark === "wrong" ? "\u2717 " : "", l.text);
  }

  function card(c) {
    return el("figure", { class: "card " + (c.mark || "") }, image(c.src, c.caption) || el("div", { class: "soft" }, c.missing || "no image"),
      el("figcaption", {}, c.caption ? el("div", {}, c.caption) : null, ...list(c.lines).map(line), c.facts ? facts(c.facts) : null));
  }

  function images(f) {
    const out = el("div", { class: "images " + (f.layout || "cards") });
    let group = null;
    let grid = null;
    for (const c of f.items.slice().sort((a, b) => (a.place || 0) - (b.place || 0))) {
      if (grid === null || (c.group || null) !== group) {
        group = c.group || null;
        grid = el("div", { class: "grid" });
        out.append(el("section", {}, group ? el("h4", {}, group) : null, grid));
      }
      grid.append(card(c));
    }
    return out;
  }

  function item(f) {
    if (PAINTERS[f.kind]) return figure(f);
    const title = f.title && !f.folded ? el("h3", {}, f.title) : null;
    const body = f.kind === "table" ? table(f)
      : f.kind === "images" ? images(f)
      : f.kind === "facts" ? facts(f.rows || Object.entries(f.object))
      : f.kind === "run" ? run(f)
      : f.kind === "retrieval" ? retrieval(f)
      : f.kind === "code" ? el("pre", {}, f.text)
      : f.kind === "multiples" ? el("div", { class: "multiples" }, ...f.items.map(item))
      : el("p", { class: f.small ? "note" : null }, f.text || "");
    const note = f.note ? el("p", { class: "note" }, f.note) : null;
    return fold(f.title, f.folded, el("div", { class: "item", "data-kind": f.kind }, title, body, note));
  }

  /* Figures that follow each other share rows. */
  function section(s, i) {
    const body = el("div", {}, ...list(s.text).map((t) => el("p", {}, t)));
    let row = null;
    for (const f of list(s.items)) {
      if (!PAINTERS[f.kind]) {
        row = null;
        body.append(item(f));
        continue;
      }
      if (row === null) body.append((row = el("div", { class: "figures" })));
      row.append(item(f));
    }
    const head = s.title && !s.folded ? el("h2", {}, s.title) : null;
    if (body.childElementCount === 0) return null;
    return el("section", { id: "section-" + i }, head, fold(s.title, s.folded, body));
  }

  const main = el("main");
  const titled = list(page.sections).map((s, i) => [s.title, section(s, i)]).filter(([, body]) => body);
  if (titled.length > 2 && titled.length < 20) {
    main.append(el("nav", {}, ...titled.map(([title, body]) => (title ? el("a", { href: "#" + body.id }, title) : null))));
  }
  main.append(...titled.map(([, body]) => body));
  document.querySelectorAll(".plain").forEach((e) => e.remove());
  document.body.append(main);
})();
