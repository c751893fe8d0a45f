// Charts: lines over the updates, and errors with their intervals.

const CHART = { width: 340, height: 186, left: 46, right: 8, top: 8, bottom: 24 };

function ticks(low, high, count) {
  const power = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = [1, 2, 2.5, 4, 5, 10].map((m) => m * power).find((t) => (high - low) / t <= count);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) {
    found.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  }
  return found;
}

function legendLine(series) {
  return s("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, s("line", {
    x1: 0, x2: 22, y1: 4, y2: 4, stroke: series.colour, "stroke-width": 2, "stroke-dasharray": series.dash,
  }));
}

function legend(series) {
  return h("ul", { class: "legend" }, series.map((one) => h("li", {}, legendLine(one), one.name)));
}

// The lowest and highest value of the vertical axis, with some space around the curves.
function valueRange(sizes, { log, low, high }) {
  let bottom = low ?? Math.min(...sizes), top = high ?? Math.max(...sizes);
  if (log) {
    bottom = 10 ** Math.floor(Math.log10(bottom));
    top = 10 ** Math.ceil(Math.log10(top));
    return [bottom, top > bottom ? top : 10 * bottom];
  }
  if (top - bottom < 1e-12) {
    top += Math.abs(top) || 1;
    if (low === null) bottom = Math.min(bottom, 0);
  }
  const space = 0.06 * (top - bottom);
  return [low === null && bottom !== 0 ? bottom - space : bottom, high === null ? top + space : top];
}

function valueTicks([bottom, top], log) {
  if (!log) return ticks(bottom, top, 5);
  const first = Math.round(Math.log10(bottom)), count = Math.round(Math.log10(top)) - first;
  const every = Math.ceil(count / 4);
  return Array.from({ length: count + 1 }, (_, i) => 10 ** (first + i)).filter((_, i) => i % every === 0);
}

// The axes of a chart: functions from values to coordinates, and the grid as elements.
function axes(steps, sizes, options) {
  const { width, height, left, right, top, bottom } = CHART;
  const range = valueRange(sizes, options), last = Math.max(...steps), f = options.log ? Math.log10 : (y) => y;
  const x = (step) => left + ((width - left - right) * step) / last;
  const y = (size) => top + (height - top - bottom) * (1 - (f(size) - f(range[0])) / (f(range[1]) - f(range[0])));
  // The last mark also names the unit, and needs space.
  const wanted = ticks(0, last, 3), end = x(wanted.at(-1)), crowded = end > width - right - 40;
  const marks = wanted.filter((step, i) => !crowded || i === wanted.length - 1 || end - x(step) > 100);
  const anchor = (step) => (step === 0 ? "start" : x(step) > width - right - 40 ? "end" : "middle");
  const grid = [
    valueTicks(range, options.log).map((size) => [
      s("line", { class: "axis", x1: left, x2: width - right, y1: y(size), y2: y(size) }),
      s("text", { x: left - 6, y: y(size) + 4, "text-anchor": "end" }, short(size)),
    ]),
    marks.map((step) => s("text", { x: x(step), y: height - 7, "text-anchor": anchor(step) },
      step === marks.at(-1) ? `${whole(step)} updates` : whole(step))),
  ];
  return { x, y, last, grid };
}

function curve(one, x, y) {
  if (one.points.length === 1) {
    return s("circle", { cx: x(one.points[0][0]), cy: y(one.points[0][1]), r: 3, fill: one.colour });
  }
  return s("polyline", {
    class: one.thin ? "curve thin" : "curve", stroke: one.colour, "stroke-dasharray": one.dash,
    points: one.points.map(([step, size]) => `${x(step).toFixed(1)},${y(size).toFixed(1)}`).join(" "),
  });
}

// Lines over the updates. `rule` is a level to mark, `band` a range of good values, `key` asks for a legend.
function lineChart({ title, better, note, series, key = false, rule = null, band = null, log = false, low = null, high = null }) {
  const shown = series
    .map((one) => ({ ...one, points: one.points.filter(([, size]) => !log || size > 0) }))
    .filter((one) => one.points.length);
  if (!shown.length) return null;
  const { width, height, left, right, top, bottom } = CHART;
  const steps = shown.flatMap((one) => one.points.map((point) => point[0]));
  const sizes = shown.flatMap((one) => one.points.map((point) => point[1])).concat(rule === null ? [] : [rule]);
  const { x, y, last, grid } = axes(steps, sizes, { log, low, high });
  const summary = shown.map((one) => `${one.name} from ${short(one.points[0][1])} to ${short(one.points.at(-1)[1])}`);
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
    "aria-label": `${title} over ${whole(last)} updates: ${summary.join("; ")}. Arrow keys read values.`,
  },
    band && s("rect", { class: "band", x: left, width: width - left - right, y: y(band[1]), height: y(band[0]) - y(band[1]) }),
    grid,
    rule !== null && s("line", { class: "rule", x1: left, x2: width - right, y1: y(rule), y2: y(rule) }),
    [...shown].sort((a, b) => (b.thin ? 1 : 0) - (a.thin ? 1 : 0)).map((one) => curve(one, x, y)));
  const pointer = s("line", { class: "rule", y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(pointer);
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  readValues(svg, pointer, readout, shown, x);
  const heading = h("h3", { class: note ? "declared" : null }, title, better && h("span", { class: "better" }, ` ${better}`));
  return h("figure", {}, heading, svg, key && legend(shown), readout, note && h("figcaption", {}, note));
}

// Show the values at an update, by pointing or with the arrow keys.
function readValues(svg, pointer, readout, series, x) {
  const grid = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  let at = grid.length - 1;
  const read = (i) => {
    at = Math.max(0, Math.min(grid.length - 1, i));
    fill(pointer, { x1: x(grid[at]), x2: x(grid[at]), visibility: "visible" }, []);
    const found = series.map((one) => [one, one.points.find((point) => point[0] === grid[at])]).filter(([, point]) => point);
    const parts = found.map(([one, point]) => (series.length > 1 ? `${one.name} ` : "") + short(point[1]));
    readout.textContent = `${whole(grid[at])}: ${parts.join(", ")}`;
  };
  const clear = () => { pointer.setAttribute("visibility", "hidden"); readout.textContent = ""; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * CHART.width;
    const distance = (step) => Math.abs(x(step) - at);
    read(grid.reduce((best, step, i) => (distance(step) < distance(grid[best]) ? i : best), 0));
  });
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    read(pointer.getAttribute("visibility") === "visible" ? at + move : at);
  });
}

// An error with its interval, on a scale that all rows of a table share.
const barWidth = () => (window.innerWidth < 640 ? 84 : 300);

function errorBar(marks, most) {
  const width = barWidth(), x = (error) => 4 + (width - 8) * Math.min(1, error / most);
  return s("svg", { viewBox: `0 0 ${width} 18`, width, height: 18, "aria-hidden": "true" },
    s("line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: 18 }),
    marks.map(({ error, interval, colour, hollow }, i) => {
      const y = marks.length > 1 ? 5 + 8 * i : 9;
      return [
        interval && s("line", {
          x1: x(interval[0]), x2: x(interval[1]), y1: y, y2: y, stroke: colour,
          "stroke-width": hollow ? 1 : 2, opacity: hollow ? 0.8 : 0.55,
        }),
        s("circle", { cx: x(error), cy: y, r: 3.4, fill: hollow ? "var(--card)" : colour, stroke: colour, "stroke-width": 1.3 }),
      ];
    }));
}

function errorScale(most) {
  const width = barWidth(), narrow = width < 200;
  const marks = ticks(0, most, narrow ? 2 : 5).filter((x, i, all) => !narrow || i === 0 || i === all.length - 1);
  return s("svg", { viewBox: `0 0 ${width} 12`, width, height: 12, "aria-hidden": "true" },
    marks.map((x) => s("text", {
      x: 4 + ((width - 8) * x) / most, y: 10, "text-anchor": x === 0 ? "start" : x > most * 0.9 ? "end" : "middle",
    }, `${short(x)} %`)));
}
