"use strict";
// Draws the page from the values in it. Whatever comes from a file or class name is set as text, never as markup.
(() => {
const values = JSON.parse(document.getElementById("values").textContent);
const several = values.runs.length > 1;
const sheets = values.sheets.map((sheet) => {
  const image = new Image();
  image.src = sheet.url;
  return { ...sheet, image, ready: image.decode() };
});
let chosen = values.lead;

// Elements

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "vars") for (const [name, v] of Object.entries(value)) element.style.setProperty(name, v);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

// Numbers

const whole = (n) => n.toLocaleString("en-US");
const percent = (x, digits = 2) => (x === null || x === undefined ? "–" : `${x.toFixed(digits)}\u00a0%`);
const spread = (m, sd, digits) => (m === null ? "–" : m.toFixed(digits) + (sd === null ? "" : ` ± ${sd.toFixed(digits)}`));
const minus = (text) => text.replace(/^-/, "−");
const milli = (x) => (x === null || x === undefined ? "–" : minus((1000 * x).toFixed(2)));
const clock = (t) => (t === null || t === undefined ? "–" : t < 100 ? `${t.toFixed(0)} s` : t < 6000 ? `${(t / 60).toFixed(1)} min` : `${(t / 3600).toFixed(1)} h`);
const between = (pair) => (pair ? `${pair[0].toFixed(1)} to ${pair[1].toFixed(1)}\u00a0%` : "–");
const short = (x) => minus(x === 0 ? "0" : Math.abs(x) >= 1000 && Math.abs(x) < 1e6 ? whole(Math.round(x)) : Math.abs(x) < 0.001 || Math.abs(x) >= 1e6 ? x.toExponential(1).replace(".0e", "e").replace("e+", "e") : String(Number(x.toPrecision(3))));
const kept = (sentence) => sentence.replaceAll(" %", "\u00a0%"); // a number and its unit stay on one line
const quarter = (x) => Math.round(4 * x) / 4;
const plural = (n, one) => `${whole(n)} ${one}${n === 1 ? "" : "s"}`;

// Which colour and stroke a run has: that of its group.
const groupOf = (i) => values.groups.findIndex((group) => group.runs.includes(i));
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "10 4", "4 2 1 2"];
const stroke = (i) => ({ colour: `var(--run${groupOf(i) % 6})`, dash: DASHES[groupOf(i) % DASHES.length], thin: i !== chosen });

// Pictures

function picture(sheet, number, label) {
  const { width, height, columns, image, ready } = sheets[sheet];
  const canvas = h("canvas", { width, height, role: "img", "aria-label": label, "data-picture": number, class: width < 64 ? "pixel" : null });
  ready.then(() => canvas.getContext("2d").drawImage(image, (number % columns) * width, Math.floor(number / columns) * height, width, height, 0, 0, width, height));
  return canvas;
}

// Charts

function ticks(low, high, count) {
  const step = [1, 2, 2.5, 4, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10((high - low) / count))).find((t) => (high - low) / t <= count);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) found.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return found;
}

function sample(series) {
  return s("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, s("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: series.colour, "stroke-width": 2, "stroke-dasharray": series.dash }));
}

function legend(series) {
  return h("ul", { class: "legend" }, series.map((one) => h("li", {}, sample(one), one.name)));
}

// Lines over the updates. `rule` is a level worth seeing, `band` a range of good values.
function lines({ title, note, series, log = false, rule = null, band = null, low = null, high = null, key = false }) {
  series = series.map((one) => ({ ...one, points: one.points.filter(([, y]) => !log || y > 0) })).filter((one) => one.points.length);
  if (!series.length) return null;
  const W = 340, H = 186, L = 46, R = 8, T = 8, B = 24;
  const steps = series.flatMap((one) => one.points.map((p) => p[0]));
  const sizes = series.flatMap((one) => one.points.map((p) => p[1])).concat(rule === null ? [] : [rule]);
  const f = log ? Math.log10 : (y) => y;
  let bottom = low ?? Math.min(...sizes), top = high ?? Math.max(...sizes);
  if (log) { bottom = 10 ** Math.floor(f(bottom)); top = 10 ** Math.ceil(f(top)); }
  if (f(top) - f(bottom) < 1e-12) { top = log ? top * 10 : top + (Math.abs(top) || 1); if (!log && low === null) bottom = Math.min(bottom, 0); }
  if (!log) { const room = 0.06 * (top - bottom); if (high === null) top += room; if (low === null && bottom !== 0) bottom -= room; }
  const last = Math.max(...steps);
  const X = (x) => L + ((W - L - R) * x) / last;
  const Y = (y) => T + (H - T - B) * (1 - (f(y) - f(bottom)) / (f(top) - f(bottom)));
  let marks = ticks(bottom, top, 5);
  if (log) {
    const first = Math.round(f(bottom)), count = Math.round(f(top)) - first, every = Math.ceil(count / 4);
    marks = Array.from({ length: count + 1 }, (_, i) => 10 ** (first + i)).filter((_, i) => i % every === 0);
  }
  const wanted = ticks(0, last, 3), ends = X(wanted.at(-1)) > W - R - 40; // the last one says what they are, and needs room
  const across = wanted.filter((x, i) => !ends || i === wanted.length - 1 || X(wanted.at(-1)) - X(x) > 100);
  const pointer = s("line", { class: "rule", y1: T, y2: H - B, visibility: "hidden" });
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const told = series.map((one) => `${one.name} from ${short(one.points[0][1])} to ${short(one.points.at(-1)[1])}`).join("; ");
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: 0, "aria-label": `${title} over ${whole(last)} updates: ${told}. Arrow keys read values.` },
    band && s("rect", { class: "band", x: L, width: W - L - R, y: Y(band[1]), height: Y(band[0]) - Y(band[1]) }),
    marks.map((y) => [s("line", { class: "axis", x1: L, x2: W - R, y1: Y(y), y2: Y(y) }), s("text", { x: L - 6, y: Y(y) + 4, "text-anchor": "end" }, short(y))]),
    across.map((x) => s("text", { x: X(x), y: H - 7, "text-anchor": x === 0 ? "start" : X(x) > W - R - 40 ? "end" : "middle" }, x === across.at(-1) ? `${whole(x)} updates` : whole(x))),
    rule !== null && s("line", { class: "rule", x1: L, x2: W - R, y1: Y(rule), y2: Y(rule) }),
    [...series].sort((a, b) => (b.thin ? 1 : 0) - (a.thin ? 1 : 0)).map((one) => one.points.length > 1
      ? s("polyline", { class: one.thin ? "curve thin" : "curve", stroke: one.colour, "stroke-dasharray": one.dash, points: one.points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join(" ") })
      : s("circle", { cx: X(one.points[0][0]), cy: Y(one.points[0][1]), r: 3, fill: one.colour })),
    pointer);
  const grid = [...new Set(steps)].sort((a, b) => a - b);
  let at = grid.length - 1;
  const read = (i) => {
    at = Math.max(0, Math.min(grid.length - 1, i));
    fill(pointer, { x1: X(grid[at]), x2: X(grid[at]), visibility: "visible" }, []);
    const parts = series.map((one) => [one, one.points.find((p) => p[0] === grid[at])]).filter(([, p]) => p);
    readout.textContent = `${whole(grid[at])}: ` + parts.map(([one, p]) => (series.length > 1 ? `${one.name} ` : "") + short(p[1])).join(", ");
  };
  const clear = () => { pointer.setAttribute("visibility", "hidden"); readout.textContent = ""; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (((event.clientX - box.left) / box.width) * W - L) / (W - L - R) * last;
    read(grid.reduce((best, g, i) => (Math.abs(g - x) < Math.abs(grid[best] - x) ? i : best), 0));
  });
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) { event.preventDefault(); read(pointer.getAttribute("visibility") === "visible" ? at + move : at); }
  });
  return h("figure", {}, h("h3", {}, title), svg, key && legend(series), readout, note && h("figcaption", {}, note));
}

const every = (pick) => values.runs.map((run, i) => ({ name: run.name, points: pick(run.curves) || [], ...stroke(i) }));

// An error with its interval on a scale that all rows of a table share.
const barWidth = () => (window.innerWidth < 640 ? 84 : 300);
function bar(marks, most) {
  const W = barWidth(), X = (x) => 4 + (W - 8) * Math.min(1, x / most);
  return s("svg", { viewBox: `0 0 ${W} 18`, width: W, height: 18, "aria-hidden": "true" },
    s("line", { class: "axis", x1: X(0), x2: X(0), y1: 0, y2: 18 }),
    marks.map(({ error, interval, colour, hollow }, i) => {
      const y = marks.length > 1 ? 5 + 8 * i : 9;
      return [
        interval && s("line", { x1: X(interval[0]), x2: X(interval[1]), y1: y, y2: y, stroke: colour, "stroke-width": hollow ? 1 : 2, opacity: hollow ? 0.8 : 0.55 }),
        s("circle", { cx: X(error), cy: y, r: 3.4, fill: hollow ? "var(--card)" : colour, stroke: colour, "stroke-width": 1.3 }),
      ];
    }));
}

function scale(most) {
  const W = barWidth();
  return s("svg", { viewBox: `0 0 ${W} 12`, width: W, height: 12, "aria-hidden": "true" },
    ticks(0, most, W < 200 ? 2 : 5).filter((x, i, all) => W > 200 || i === 0 || i === all.length - 1).map((x) => s("text", { x: 4 + ((W - 8) * x) / most, y: 10, "text-anchor": x === 0 ? "start" : x > most * 0.9 ? "end" : "middle" }, `${short(x)} %`)));
}

// Sections

function verdict(run) {
  const beside = run.versus && values.runs[run.versus.run];
  const number = run.part === null ? null : h("p", { class: "hero" },
    h("span", { class: "number", id: "error" }, percent(run.error)),
    h("span", { class: "of" }, `error on the ${run.part} set`, h("br"), `95 % interval ${between(run.interval)}`));
  const words = run.part === null ? run.verdict : run.verdict.slice(1);
  const group = values.groups[groupOf(chosen)], other = run.versus && values.groups[groupOf(run.versus.run)];
  const key = run.part === "test" ? "test_error" : "val_error";
  const over = (some) => `${spread(some[key], some[`${key}_std`], 2)}\u00a0%`;
  const seeds = group.runs.length > 1 && run.part !== null && h("p", { class: "lead", id: "seeds" }, "This is one of ", String(group.runs.length), " seeds; over all of them the error is ", h("strong", {}, over(group)),
    other && other.runs.length > 1 && ["; supervised-only it is ", h("strong", {}, over(other))], ".");
  const facts = [
    ["labelled images", whole(run.labels)], ["unlabelled images", run.unlabelled === null ? "–" : whole(run.unlabelled)],
    run.part === "test" && run.val_error !== null && ["validation error", percent(run.val_error)],
    ["labelled error", percent(run.labelled_error)], ["MMD² × 10³", milli(run.mmd2)],
    ["updates", whole(run.steps)], ["training time", clock(run.seconds)], ["seed", String(run.seed)],
  ].filter(Boolean);
  return h("section", { id: "verdict", class: "first" },
    h("h1", {}, `${run.data}, ${plural(run.labels, "label")}: ${run.words}`), number, seeds,
    words.map((sentence) => h("p", { class: "lead" }, kept(sentence))),
    run.versus
      ? h("p", { class: "lead" }, kept(run.versus.words[0]), " ", h("span", { class: `outcome ${run.versus.outcome}`, id: "outcome" }, kept(run.versus.words[1])), " ", h("span", { class: "quiet" }, run.versus.words.slice(2).join(" ")))
      : h("p", { class: "quiet" }, run.supervised_only
        ? "This run learnt from the labelled images alone; it is what others are compared with."
        : run.part === null
        ? "Whether the unlabelled images helped is not known: there are no test or validation images to compare on."
        : "Whether the unlabelled images helped is not known: there is no supervised-only run with the same labels to compare with. Train one with --method supervised --align none and give both to afda report."),
    run.missing.length ? h("div", { class: "missing", role: "note" }, run.missing.map((m) => h("p", {}, m))) : null,
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    run.part !== null && classErrors(run, beside));
}

function classErrors(run, beside) {
  const colour = "var(--run0)", other = "var(--run1)";
  const top = (interval) => (interval ? interval[1] : 0);
  const rows = run.classes.map((name, k) => ({ name, ...run.class_errors[k], beside: beside && beside.class_errors[k] }));
  const sorted = rows.length > 20 ? [...rows].sort((a, b) => (b.error ?? -1) - (a.error ?? -1)) : rows;
  const all = { name: "all classes", error: run.error, images: run.images, interval: run.interval, beside };
  const most = Math.min(100, Math.max(5, ...[all, ...rows].flatMap((row) => [top(row.interval), row.beside ? top(row.beside.interval) : 0])));
  const line = (row, kind) => h("tr", { class: kind }, h("td", {}, row.name), h("td", { class: "roomy" }, whole(row.images)), h("td", {}, percent(row.error, row === all ? 2 : 1)), h("td", { class: "roomy" }, between(row.interval)),
    beside && h("td", {}, percent(row.beside.error, row === all ? 2 : 1)),
    h("td", {}, row.error === null ? null : bar([{ error: row.error, interval: row.interval, colour }, ...(beside && row.beside.error !== null ? [{ ...row.beside, colour: other, hollow: true }] : [])], most)));
  const table = (some, first) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Error per class" }, h("table", { class: "classes" },
    h("thead", {}, h("tr", {}, ["class", "images", "error", "95 % interval", beside && "supervised-only"].filter(Boolean).map((t, j) => h("th", { scope: "col", class: j === 1 || j === 3 ? "roomy" : null }, t)), h("th", { scope: "col" }, scale(most)))),
    h("tbody", {}, first && line(all, "mean"), some.map((row) => line(row, null)))));
  return h("div", { vars: { "margin-top": "2.2rem" } }, h("h3", {}, "Error per class"),
    beside && h("ul", { class: "legend", "aria-hidden": "true" }, h("li", {}, s("svg", { viewBox: "0 0 22 8" }, s("circle", { cx: 11, cy: 4, r: 3.4, fill: colour })), "this run"), h("li", {}, s("svg", { viewBox: "0 0 22 8" }, s("circle", { cx: 11, cy: 4, r: 3.2, fill: "none", stroke: other, "stroke-width": 1.3 })), "supervised-only")),
    table(sorted.slice(0, 20), true),
    sorted.length > 20 && h("details", {}, h("summary", {}, `${sorted.length - 20} more classes, with fewer errors`), table(sorted.slice(20), false)),
    h("p", { class: "note" }, "Intervals (Wilson) say what other images of the same kind could have given. They leave out that other labels or another seed give another model: train with several seeds for that."));
}

function comparison() {
  const choose = (i) => { chosen = i; draw(); document.getElementById("verdict").scrollIntoView(); };
  const name = (i) => h("button", { type: "button", onclick: () => choose(i), "aria-label": `show ${values.runs[i].name}` }, values.runs[i].name);
  const columns = ["run", "test error %", "val error %", "MMD² × 10³", "method", "alignment", "labels", "seed", "time"];
  const left = (j) => (j === 0 || j === 4 || j === 5 ? "left" : null);
  const empty = (j) => (j === 1 || j === 2) && values.runs.every((run) => (j === 1 ? run.test_error : run.val_error) === null);
  const cellsOf = (tag, cells, props) => cells.map((c, j) => empty(j) ? null : h(tag, { class: left(j), ...props }, c));
  const mixed = new Set(values.runs.map((run) => run.data)).size > 1;
  const row = (i) => {
    const run = values.runs[i];
    const error = (x) => (x === null ? "–" : x.toFixed(2));
    const cells = [name(i), error(run.test_error), error(run.val_error), milli(run.mmd2), run.recipe.method.map((m) => m.name).join("+"), run.recipe.align ? run.recipe.align.name : "none", whole(run.labels), String(run.seed), clock(run.seconds)];
    return h("tr", { class: i === chosen ? "chosen" : null, "data-run": i }, cellsOf("td", cells), mixed && h("td", {}, run.data));
  };
  const average = (group) => {
    const times = (x) => (x === null ? null : 1000 * x);
    const cells = [`mean of ${group.runs.length} seeds`, spread(group.test_error, group.test_error_std, 2), spread(group.val_error, group.val_error_std, 2), minus(spread(times(group.mmd2), times(group.mmd2_std), 2)), "", "", "", "", clock(group.seconds)];
    return h("tr", { class: "mean" }, cellsOf("td", cells), mixed && h("td"));
  };
  return h("section", { id: "runs" }, h("h2", {}, `${values.runs.length} runs`),
    h("p", { class: "quiet" }, "What follows is of the run that is marked; choose another here or at the top of the page.", values.groups.some((group) => group.runs.length > 1) && " Runs that differ in nothing but the seed are averaged, ± their standard deviation."),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of runs" }, h("table", {},
      h("thead", {}, h("tr", {}, cellsOf("th", [...columns, ...(mixed ? ["data"] : [])], { scope: "col" }))),
      h("tbody", {}, values.groups.map((group) => [group.runs.map(row), group.runs.length > 1 && average(group)])))));
}

const BOUND = { features_true: "features, true classes", labels_true: "labels, true classes", features_predicted: "features, predicted classes", labels_predicted: "labels, predicted classes", gap: "difference of the risks" };
const TERMS = { supervised: "Supervised term", consistency: "Consistency term", entropy: "Entropy term", alignment: "Alignment term" };

function training(run) {
  const own = (points, name, i, more) => ({ name, points: points || [], colour: `var(--run${i})`, dash: DASHES[i], ...more });
  const logged = new Set(values.runs.flatMap((r) => Object.keys(r.curves.terms)));
  const names = [...new Set([...Object.keys(TERMS), ...logged])].filter((name) => logged.has(name));
  const curves = run.curves;
  const tested = Object.entries(run.test_curve || {}).map(([step, error]) => [Number(step), error]);
  const light = run.discriminator;
  const groups = values.groups.map((group, g) => ({ name: group.words + (group.runs.length > 1 ? `, ${group.runs.length} seeds` : ""), colour: `var(--run${g % 6})`, dash: DASHES[g % DASHES.length] }));
  const last = curves.bound.total && curves.bound.total.at(-1)[1];
  return h("section", { id: "training" }, h("h2", {}, "How it trained"),
    run.warnings.length ? h("div", { class: "missing", role: "note", id: "warnings" }, run.warnings.map((w) => h("p", {}, w))) : null,
    several && legend(groups),
    h("div", { class: "charts" },
      names.map((name) => lines({ title: TERMS[name] || `${name} term`, series: every((c) => c.terms[name]) })),
      lines({ title: "Learning rate", series: every((c) => c.learning_rate), low: 0 }),
      lines({ title: "Weight of the alignment, µ", series: every((c) => c.mu), low: 0 }),
      lines({ title: several ? "Errors of this run (%)" : "Errors (%)", low: 0, key: true, series: [own(curves.labelled_error, "labelled", 0), own(curves.val_error, "validation", 1), own(tested, "test, looked at after the training", 2)] })),
    h("h3", {}, "Alignment of labelled and unlabelled features"),
    light
      ? h("div", { class: "light", id: "light" }, h("span", { class: `lamp ${light.light}`, "aria-hidden": "true" }), h("div", {},
        h("p", {}, h("strong", { class: light.light }, `Discriminator: ${light.state}. `), `Right in ${(100 * light.accuracy).toFixed(1)}\u00a0% of the cases towards the end; 50\u00a0% is chance, however few images of a batch are labelled. ${light.words}`),
        h("p", { class: "quiet" }, light.advice)))
      : h("p", { class: "quiet" }, run.recipe.align ? "This alignment has no discriminator." : "This run aligns nothing, so it has no discriminator."),
    h("div", { class: "charts" },
      lines({ title: "Accuracy of the discriminator", series: every((c) => c.discriminator_accuracy), rule: 0.5, band: [0.42, 0.68], low: 0.3, high: 1, note: "Dotted: chance. Shaded: healthy." }),
      lines({ title: "MMD², labelled to unlabelled", series: every((c) => c.mmd2), rule: 0, note: "An estimate on a sample: once the features are aligned it scatters around zero, or below it if equally many images of each class are labelled." }),
      lines({ title: "Terms of the bound (Theorem 1)", log: true, key: true, series: Object.entries(BOUND).map(([key, name], i) => own(curves.bound[key], name, i)),
        note: last === undefined ? null : `${several ? "Of this run. " : ""}At the end the four terms add up to ${short(last)}, and what the paper’s approximation drops is ${short(curves.bound.remainder.at(-1)[1])}.` })),
    !curves.bound.total && h("p", { class: "note" }, "The terms of Theorem 1 need the true labels of the unlabelled images, which are known in benchmarks only."));
}

// The map of features

const probe = h("span", { class: "hidden", "aria-hidden": "true" });
document.body.append(probe);
function resolved(colour) {
  probe.style.color = colour;
  return getComputedStyle(probe).color;
}
const classColour = (k) => (k < 10 ? `var(--k${k})` : `color-mix(in oklab, var(--k${k % 10}), ${Math.floor(k / 10) % 2 ? "black 35%" : "white 35%"})`);
const sureness = (c, few) => `color-mix(in oklab, var(--k6) ${Math.round(100 * (1 - Math.max(0, (c - few) / (1 - few))))}%, light-dark(#9fbad6, #38587a))`;

function map(run) {
  const m = run.map;
  if (!m) {
    const first = values.runs[values.groups[groupOf(chosen)].runs[0]];
    return h("section", { id: "map" }, h("h2", {}, "Map of the features"), h("p", { class: "quiet" },
      first.map ? `Of runs that differ in the seed only, the first has a map: ${first.name}.` : "There is no map of this run."));
  }
  const n = m.points.length, known = m.true.some((k) => k >= 0), pictures = m.pictures && sheets[m.sheet];
  const wide = Math.max(1, ...m.points.map((p) => p[0])), high = Math.max(1, ...m.points.map((p) => p[1]));
  const order = Array.from({ length: n }, (_, i) => n - 1 - i); // labelled ones come first in the values, and last on the canvas
  const off = new Set();
  let by = 2 * m.true.filter((k) => k >= 0).length > n ? "true" : "predicted", show = "all", view = null, fitted = null, at = null, colours = [], asked = false;
  const canvas = h("canvas", { class: "map", tabindex: 0, role: "application", "aria-roledescription": "map of images", "aria-describedby": "map-help",
    "aria-label": `t-SNE map of ${whole(n)} images. Arrow keys go from image to image, plus and minus zoom, 0 shows all.` });
  const tip = h("div", { class: "tip", hidden: true }), halo = h("div", { class: "halo", hidden: true });
  let middles = [], around = 16;
  const live = h("div", { class: "hidden", "aria-live": "polite", id: "map-live" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Classes shown" });
  const count = h("span", { class: "note", id: "map-count" });
  const key = h("span", { class: "note" });
  const classOf = (i) => (by === "true" ? m.true[i] : m.predicted[i]);
  const wrong = (i) => m.true[i] >= 0 && m.true[i] !== m.predicted[i];
  const shown = (i) => !off.has(classOf(i)) && (show === "all" || (show === "labelled" ? i < m.labelled : show === "wrong" ? wrong(i) : m.confidence[i] < 0.8));
  const nameOf = (k) => (k < 0 ? "unknown" : run.classes[k]);
  const few = 1 / run.classes.length;

  function paint() {
    const cache = new Map();
    const solid = (c) => { if (!cache.has(c)) cache.set(c, resolved(c)); return cache.get(c); };
    colours = m.points.map((_, i) => by === "confidence" ? solid(sureness(Math.round(m.confidence[i] * 40) / 40, few))
      : by === "answer" ? solid(m.true[i] < 0 ? "var(--line)" : wrong(i) ? "var(--bad)" : "light-dark(#9fbad6, #38587a)")
      : classOf(i) < 0 ? solid("var(--line)") : solid(classColour(classOf(i))));
  }
  function fit() {
    const pad = 22, { clientWidth: w, clientHeight: t } = canvas;
    const k = Math.min((w - 2 * pad) / wide, (t - 2 * pad) / high);
    return { k, x: (w - k * wide) / 2, y: (t - k * high) / 2 };
  }
  const place = (i) => [m.points[i][0] * view.k + view.x, m.points[i][1] * view.k + view.y];
  function render() {
    asked = false;
    if (!canvas.isConnected || !view) return;
    const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, t = canvas.clientHeight;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(t * ratio)) { canvas.width = Math.round(w * ratio); canvas.height = Math.round(t * ratio); }
    canvas.dataset.view = [view.k, view.x, view.y].join(" ");
    const c = canvas.getContext("2d"), zoom = view.k / fitted.k, ink = resolved("var(--ink)"), card = resolved("var(--card)");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, w, t);
    const near = order.filter((i) => { const [x, y] = place(i); return shown(i) && x > -20 && x < w + 20 && y > -20 && y < t + 20; });
    const small = quarter(Math.min(6, (n > 2000 ? 2 : 2.8) * Math.sqrt(zoom))), large = quarter(Math.min(8, 4.6 * Math.sqrt(zoom)));
    const images = pictures && pictures.image.complete && zoom > 2 && near.length <= 160;
    const ringed = new Map(), plain = new Map();
    for (const i of near) {
      const [x, y] = place(i), labelled = i < m.labelled;
      if (images) {
        const side = 30, { width, height, columns, image } = pictures, p = m.pictures[i];
        c.fillStyle = colours[i];
        c.fillRect(x - side / 2 - 2.5, y - side / 2 - 2.5, side + 5, side + 5);
        c.imageSmoothingEnabled = width > side;
        c.drawImage(image, (p % columns) * width, Math.floor(p / columns) * height, width, height, x - side / 2, y - side / 2, side, side);
        if (labelled) { c.strokeStyle = ink; c.lineWidth = 1.6; c.strokeRect(x - side / 2 - 3.5, y - side / 2 - 3.5, side + 7, side + 7); }
        continue;
      }
      const stamps = labelled ? ringed : plain;
      if (!stamps.has(colours[i])) stamps.set(colours[i], disc(colours[i], labelled ? large : small, labelled ? ink : null, ratio));
      const stamp = stamps.get(colours[i]);
      c.drawImage(stamp, x - stamp.width / ratio / 2, y - stamp.height / ratio / 2, stamp.width / ratio, stamp.height / ratio);
    }
    if ((by === "true" || by === "predicted") && run.classes.length <= 30 && zoom < 4) {
      c.font = "700 15px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle"; c.lineJoin = "round";
      for (const [name, x, y] of middles) {
        c.strokeStyle = card; c.lineWidth = 4; c.strokeText(name, x * view.k + view.x, y * view.k + view.y);
        c.fillStyle = ink; c.fillText(name, x * view.k + view.x, y * view.k + view.y);
      }
    }
    around = 2 * ((images ? 26 : large) + 4);
    mark();
  }
  // The ring around the image in question is an element of its own, so that pointing need not draw the map again.
  function mark() {
    halo.hidden = at === null || !shown(at);
    if (halo.hidden) return;
    const [x, y] = place(at);
    for (const [name, v] of Object.entries({ left: x - around / 2, top: y - around / 2, width: around, height: around })) halo.style[name] = `${v}px`;
  }
  // A disc of each colour is drawn once and stamped thousands of times.
  function disc(colour, radius, ring, ratio) {
    const side = Math.ceil(2 * (radius + 1.5) * ratio), stamp = h("canvas", { width: side, height: side }), c = stamp.getContext("2d");
    c.scale(ratio, ratio);
    c.arc(side / ratio / 2, side / ratio / 2, radius, 0, 7);
    c.globalAlpha = ring ? 1 : 0.78;
    c.fillStyle = colour;
    c.fill();
    if (ring) { c.strokeStyle = ring; c.lineWidth = 1.5; c.stroke(); }
    return stamp;
  }
  const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(render); } };
  function point(i, spoken) {
    at = i;
    mark();
    tip.hidden = i === null;
    if (i === null) { tip.removeAttribute("data-point"); return; }
    const facts = [m.true[i] >= 0 && `true class ${nameOf(m.true[i])}`, `predicted ${nameOf(m.predicted[i])}, ${(100 * m.confidence[i]).toFixed(0)} % sure`, i < m.labelled ? "labelled" : "unlabelled"].filter(Boolean);
    tip.dataset.point = i;
    tip.replaceChildren();
    if (pictures) {
      const shownPicture = picture(m.sheet, m.pictures[i], m.names[i]);
      const scale = Math.min(128 / pictures.width, 128 / pictures.height);
      shownPicture.style.width = `${Math.round(pictures.width * scale)}px`;
      tip.append(shownPicture);
    }
    fill(tip, {}, [facts.map((fact, j) => h("p", { class: j === 1 && wrong(i) ? "bad" : null }, fact)), h("p", { class: "name" }, m.names[i])]);
    const [x, y] = place(i), w = canvas.clientWidth, t = canvas.clientHeight;
    tip.style.left = `${Math.max(4, Math.min(w - tip.offsetWidth - 4, x > w / 2 ? x - tip.offsetWidth - 16 : x + 16))}px`;
    tip.style.top = `${Math.max(4, Math.min(t - tip.offsetHeight - 4, y - tip.offsetHeight / 2))}px`;
    if (spoken) live.textContent = `${m.names[i]}: ${facts.join(", ")}`;
  }
  function nearest(x, y, within) {
    let best = null, closest = within * within;
    for (let i = 0; i < n; i++) {
      if (!shown(i)) continue;
      const [a, b] = place(i), d = (a - x) ** 2 + (b - y) ** 2;
      if (d < closest) { closest = d; best = i; }
    }
    return best;
  }
  function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const k = Math.max(fitted.k * 0.8, Math.min(fitted.k * 60, view.k * factor)), f = k / view.k;
    view = { k, x: x - (x - view.x) * f, y: y - (y - view.y) * f };
    redraw(); if (at !== null) point(at);
  }
  function reset() { fitted = fit(); view = { ...fitted }; redraw(); if (at !== null) point(at); }
  function step(dx, dy) {
    const w = canvas.clientWidth, t = canvas.clientHeight;
    if (at === null || !shown(at)) { point(nearest(w / 2, t / 2, 1e9), true); return; }
    const [x, y] = place(at);
    let best = null, least = Infinity;
    for (let i = 0; i < n; i++) {
      if (i === at || !shown(i)) continue;
      const [a, b] = place(i), along = (a - x) * dx + (b - y) * dy, aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      if (along > 0 && aside <= along && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    }
    if (best === null) return;
    const [a, b] = place(best);
    view.x += a < 30 ? 30 - a : a > w - 30 ? w - 30 - a : 0;
    view.y += b < 30 ? 30 - b : b > t - 30 ? t - 30 - b : 0;
    if (a < 30 || a > w - 30 || b < 30 || b > t - 30) redraw();
    point(best, true);
  }
  const where = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, where(event)); if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId); });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) canvas.addEventListener(end, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = where(event), before = fingers.get(event.pointerId);
    if (before && event.pointerType === "mouse") { view.x += x - before[0]; view.y += y - before[1]; fingers.set(event.pointerId, [x, y]); redraw(); point(null); return; }
    if (before && fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      const far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
      zoom(far([x, y]) / Math.max(1, far(before)), (x + other[0]) / 2, (y + other[1]) / 2);
      fingers.set(event.pointerId, [x, y]);
      return;
    }
    const found = nearest(x, y, 14);
    if (found !== at) point(found);
  });
  canvas.addEventListener("click", (event) => point(nearest(...where(event), 24)));
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && document.activeElement !== canvas) point(null); });
  canvas.addEventListener("dblclick", (event) => zoom(2, ...where(event)));
  canvas.addEventListener("wheel", (event) => {
    // The wheel scrolls the page until the map has been clicked, or Ctrl is held.
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0022), ...where(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const [x, y] = at === null ? [undefined, undefined] : place(at);
    if (move && event.shiftKey) { view.x -= 60 * move[0]; view.y -= 60 * move[1]; redraw(); if (at !== null) point(at); }
    else if (move) step(...move);
    else if (event.key === "+" || event.key === "=") zoom(1.5, x, y);
    else if (event.key === "-") zoom(1 / 1.5, x, y);
    else if (event.key === "0") reset();
    else if (event.key === "Escape") point(null);
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => point(null));
  canvas.addEventListener("focus", () => { if (at === null && canvas.matches(":focus-visible")) step(0, 0); });

  function update() {
    paint();
    const now = order.filter(shown);
    middles = run.classes.flatMap((name, k) => {
      const of = now.filter((i) => classOf(i) === k), middle = (axis) => of.map((i) => m.points[i][axis]).sort((a, b) => a - b)[Math.floor(of.length / 2)];
      return of.length < 5 ? [] : [[name.length > 18 ? `${name.slice(0, 17)}…` : name, middle(0), middle(1)]];
    });
    count.textContent = `${whole(now.length)} of ${whole(n)} images shown`;
    key.replaceChildren();
    if (by === "confidence") fill(key, {}, [`${(100 * few).toFixed(0)} % `, h("span", { class: "ramp", vars: { background: `linear-gradient(to right in oklab, ${sureness(few, few)}, ${sureness(1, few)})` } }), " 100 % sure"]);
    if (by === "answer") fill(key, {}, [h("span", { class: "bad" }, "wrong"), ", right, ", "and what is not known in grey"]);
    const present = new Set(m.points.map((_, i) => classOf(i)));
    chips.replaceChildren(...[...Array(run.classes.length).keys(), -1].filter((k) => present.has(k)).map((k) =>
      h("button", { type: "button", class: "chip", "aria-pressed": String(!off.has(k)), "data-class": k, onclick: () => { if (off.has(k)) off.delete(k); else off.add(k); again(`[data-class="${k}"]`); } },
        h("i", { vars: { background: k < 0 ? "var(--line)" : by === "true" || by === "predicted" ? classColour(k) : "var(--soft)" } }), nameOf(k))));
    if (at !== null && !shown(at)) point(null);
    redraw();
  }
  function again(selector) { update(); const same = chips.querySelector(selector); if (same) same.focus(); }
  const options = (pairs, id, now, change) => h("select", { id, onchange: (event) => { change(event.target.value); update(); } }, pairs.filter(Boolean).map(([value, text]) => h("option", { value, selected: value === now }, text)));
  const button = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
  const ways = [known && ["true", "true class"], ["predicted", "predicted class"], ["confidence", "confidence"], known && ["answer", "right or wrong"]];
  const limits = [["all", "all images"], ["labelled", "labelled only"], known && ["wrong", "wrongly classified"], ["unsure", "less than 80 % sure"]];
  new ResizeObserver(() => { if (!canvas.isConnected) return; if (!view || view.k === fitted.k) reset(); else { fitted = fit(); redraw(); } }).observe(canvas);
  if (pictures) pictures.ready.then(redraw);
  repaint = update;

  const box = h("section", { id: "map" }, h("h2", {}, "Map of the features"),
    h("p", {}, `What the net makes of ${plural(m.labelled, "labelled image")} (ringed) and ${n - m.labelled < m.unlabelled ? `${whole(n - m.labelled)} of ${whole(m.unlabelled)}` : whole(n - m.labelled)} unlabelled ones, by t‑SNE: images that it finds alike lie together. ${pictures ? "Point at one to see it; zoom in and the images appear." : "Point at one to see what is known of it."}`),
    h("div", { class: "tools" }, h("label", { for: "colour" }, "Colour by"), options(ways, "colour", by, (v) => { by = v; }), h("label", { for: "show" }, "Show"), options(limits, "show", show, (v) => { show = v; }),
      button("All classes", "show all classes", () => { off.clear(); update(); }), button("None", "hide all classes", () => { for (let k = -1; k < run.classes.length; k++) off.add(k); update(); }), key, count),
    chips,
    h("div", { class: "mapbox" }, canvas, h("div", { class: "zoom" }, button("+", "zoom in", () => zoom(1.6)), button("−", "zoom out", () => zoom(1 / 1.6)), button("⤢", "show the whole map", reset)), halo, tip, live),
    h("p", { class: "note", id: "map-help" }, "Drag to move, double-click or pinch to zoom, click into the map to zoom with the wheel. Keyboard: arrows go from image to image, with Shift they move the map, + and − zoom, 0 shows all."),
    asTable(run));
  update();
  return box;
}

function asTable(run) {
  const m = run.map, known = m.true.some((k) => k >= 0);
  const rows = run.classes.map((name, k) => {
    const of = m.predicted.flatMap((p, i) => (p === k ? [i] : []));
    const truth = of.filter((i) => m.true[i] >= 0);
    return [name, whole(of.length), whole(of.filter((i) => i < m.labelled).length), of.length ? percent((100 * of.reduce((sum, i) => sum + m.confidence[i], 0)) / of.length, 1) : "–",
      known && (truth.length ? percent((100 * truth.filter((i) => m.true[i] !== k).length) / truth.length, 1) : "–")].filter((c) => c !== false);
  });
  return h("details", {}, h("summary", {}, "The map in words"),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["predicted class", "images", "of them labelled", "mean confidence", known && "of them wrong"].filter(Boolean).map((c) => h("th", { scope: "col" }, c)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((c) => h("td", {}, c))))))));
}

// Mistakes and confidence

function matrix(run) {
  const total = run.confusion.map((row) => row.reduce((a, b) => a + b, 0));
  const pairs = run.confusion.flatMap((row, i) => row.flatMap((count, j) => (i !== j && count ? [[count, i, j]] : []))).sort((a, b) => b[0] - a[0]);
  const often = pairs.slice(0, 5).map(([count, i, j]) => h("li", {}, h("strong", {}, run.classes[i]), " taken for ", h("strong", {}, run.classes[j]), `: ${whole(count)} of ${whole(total[i])}`));
  return h("div", {}, h("h3", {}, "What is taken for what"),
    run.classes.length <= 30 && h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix" }, h("table", { class: "matrix" },
      h("caption", { class: "note", vars: { "text-align": "left" } }, "rows: true class; columns: predicted class"),
      h("thead", {}, h("tr", {}, h("td"), run.classes.map((name) => h("th", { scope: "col", title: name }, name)))),
      h("tbody", {}, run.confusion.map((row, i) => h("tr", {}, h("th", { scope: "row", title: run.classes[i] }, run.classes[i]),
        row.map((count, j) => h("td", { vars: { "--share": `${Math.round((i === j ? 45 : Math.min(60, 240 * count / total[i])) * (count ? (i === j ? count / total[i] : 1) : 0))}%` }, class: i === j ? "right" : count ? "wrong" : "quiet", title: `${run.classes[i]} taken for ${run.classes[j]}` }, count ? whole(count) : "·"))))))),
    often.length ? [h("p", { class: "note" }, "Most often:"), h("ul", { class: "note" }, often)] : h("p", {}, "There is no mistake."));
}

function reliability(run) {
  const r = run.reliability;
  if (!r) return null;
  const W = 340, H = 300, L = 40, R = 8, T = 8, B = 66, side = (W - L - R) / 10;
  const X = (x) => L + (W - L - R) * x, Y = (y) => T + (H - T - B) * (1 - y);
  const after = r.after || r.before, n = after.bins.reduce((sum, bin) => sum + bin.images, 0);
  const told = (one) => `expected calibration error ${percent(one.ece)}`;
  const gap = after.confidence - after.accuracy;
  const steps = (bins) => bins.flatMap((bin, i) => (bin.images ? [`M${X(i / 10) + 1} ${Y(bin.accuracy)}h${side - 2}`] : [])).join("");
  return h("figure", {}, h("h3", {}, "Is it as sure as it is right?"),
    s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Reliability diagram: ${told(after)}` },
      [0, 0.25, 0.5, 0.75, 1].map((y) => [s("line", { class: "axis", x1: L, x2: W - R, y1: Y(y), y2: Y(y) }), s("text", { x: L - 6, y: Y(y) + 4, "text-anchor": "end" }, `${100 * y} %`)]),
      after.bins.map((bin, i) => bin.images ? s("rect", { x: X(i / 10) + 1, width: side - 2, y: Y(bin.accuracy), height: Y(0) - Y(bin.accuracy), fill: "var(--run0)", opacity: 0.55 }) : null),
      r.after && s("path", { d: steps(r.before.bins), stroke: "var(--run1)", "stroke-width": 2.5, fill: "none" }),
      s("line", { class: "rule", x1: X(0), y1: Y(0), x2: X(1), y2: Y(1) }),
      after.bins.map((bin, i) => s("rect", { x: X(i / 10) + 1, width: side - 2, y: H - 16 - (26 * bin.images) / n, height: (26 * bin.images) / n, fill: "var(--soft)", opacity: 0.5 })),
      [0, 0.5, 1].map((x) => s("text", { x: X(x), y: H - B + 16, "text-anchor": x === 0 ? "start" : x === 1 ? "end" : "middle" }, x === 0.5 ? "confidence 50 %" : `${100 * x} %`)),
      s("text", { x: L, y: H - 2 }, "number of images")),
    r.after && h("ul", { class: "legend" }, h("li", {}, sample({ colour: "var(--run0)", dash: "" }), "calibrated"), h("li", {}, sample({ colour: "var(--run1)", dash: "" }), "as the softmax gives it")),
    h("figcaption", {}, `Height: how often it is right among images of that confidence. On the dotted line it is honest. On average it is ${after.confidence.toFixed(1)}\u00a0% sure and right in ${after.accuracy.toFixed(1)}\u00a0% of the cases: ${Math.abs(gap) < 1 ? "as it should be" : gap > 0 ? "too sure of itself" : "too modest"}; `,
      h("span", { id: "ece" }, told(after)), r.after ? `, ${percent(r.before.ece)} before its temperature of ${r.temperature.toFixed(2)}, which was fitted to validation images.` : "."));
}

function mistakes(run) {
  const wrong = run.mistakes;
  return h("section", { id: "mistakes" }, h("h2", {}, "Where it goes wrong"),
    run.part === null ? h("p", { class: "quiet" }, "Nothing was measured on test or validation images.") : h("div", { class: run.classes.length > 6 ? "stack" : "split" }, matrix(run), reliability(run)),
    wrong && wrong.count > 0 && [
      h("h3", {}, "Mistakes that it is surest of"), h("p", { class: "quiet" }, `${whole(wrong.images.length)} of ${plural(wrong.count, "mistake")} on ${run.part} images. Some may be wrong labels.`),
      h("ul", { class: "gallery" }, wrong.images.map((_, i) => h("li", {},
        wrong.pictures && picture(wrong.sheet, wrong.pictures[i], wrong.names[i]),
        h("p", {}, h("strong", {}, run.classes[wrong.true[i]]), " taken for ", h("strong", { class: "bad" }, run.classes[wrong.predicted[i]])), h("p", { class: "name" }, `${(100 * wrong.confidence[i]).toFixed(1)} % sure, ${wrong.names[i]}`))))]);
}

function next() {
  const list = values.next;
  if (!list) return null;
  return h("section", { id: "next" }, h("h2", {}, "Label these next"),
    h("p", {}, `${plural(list.names.length, "unlabelled image")} whose labels would teach most${several ? `, as ${list.run} sees it` : ""}: the model wavers between classes, and they differ from each other. ${list.looked_at < list.unlabelled ? `They were chosen among ${whole(list.looked_at)} of ${whole(list.unlabelled)}.` : ""}`),
    list.file && h("p", {}, "Fill in the column ", h("code", {}, "label"), " of ", h("code", {}, list.file), ", beside this page, and train again with ", h("code", { class: "option" }, "--more-labels"), " ", h("code", {}, list.file), "."),
    h("ul", { class: "gallery" }, list.names.map((name, i) => h("li", {},
      list.pictures && picture(list.sheet, list.pictures[i], name),
      h("p", {}, h("strong", {}, list.classes[list.suggested[i]]), ` ${(100 * list.confidence[i]).toFixed(0)} %, or `, list.classes[list.second[i]], "?"), h("p", { class: "name" }, name)))));
}

function origin(run) {
  const { data, notes, ...machine } = run.environment;
  const table = (pairs) => h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, pairs.map(([key, value]) => h("tr", {}, h("td", {}, key), h("td", { class: "left" }, typeof value === "string" ? value : JSON.stringify(value)))))));
  return h("section", { id: "origin" }, h("h2", {}, "How to get it again"),
    h("p", { class: "quiet" }, "The same recipe on the same data, with as many threads of a like CPU, gives the same weights."), h("pre", {}, run.command),
    h("details", {}, h("summary", {}, "Recipe"), h("pre", {}, JSON.stringify(run.recipe, null, 2))),
    h("details", {}, h("summary", {}, "Environment"), table(Object.entries(machine)), (notes || []).map((note) => h("p", { class: "note" }, note))),
    h("details", {}, h("summary", {}, "Fingerprint of the data"), h("p", { class: "note" }, "SHA-256 of each file that the data came from."), table(Object.entries(data || {}))),
    h("p", { class: "note", vars: { "margin-top": "2rem" } }, `Written by afda ${values.version}. This page is one file; it fetches nothing.`));
}

// The page

let repaint = () => {};
const root = document.getElementById("page");

function draw() {
  const run = values.runs[chosen];
  const parts = [["training", "How it trained"], ["map", "Map"], ["mistakes", "Mistakes"], values.next && ["next", "Label next"], ["origin", "Recipe"]];
  if (several) parts.unshift(["runs", "Runs"]);
  const top = verdict(run);
  top.append(h("nav", { "aria-label": "Sections" }, parts.filter(Boolean).map(([id, name]) => h("a", { href: `#${id}` }, name))));
  root.replaceChildren(...[top, several && comparison(), training(run), map(run), mistakes(run), next(), origin(run)].filter(Boolean));
  const select = document.getElementById("run");
  if (select) select.value = String(chosen);
}

if (several) {
  document.getElementById("chooser").append(h("label", { for: "run" }, "Run"), h("select", { id: "run", onchange: (event) => { chosen = Number(event.target.value); const y = window.scrollY; draw(); window.scrollTo(0, y); } },
    values.runs.map((run, i) => h("option", { value: i }, `${run.name}: ${run.words}`))));
}
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const theme = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
const themed = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `switch to ${isDark() ? "light" : "dark"} colours`); repaint(); };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; themed(); });
dark.addEventListener("change", themed);
draw();
themed();
})();
