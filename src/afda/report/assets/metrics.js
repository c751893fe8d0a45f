// Metrics as their declarations say: label, description, unit and better direction.

// How a value of each unit is scaled, and what stands behind the label and the value.
const UNITS = {
  "": { factor: 1, label: "", value: "", digits: null },
  "%": { factor: 1, label: " (%)", value: "\u00a0%", digits: 2 },
  share: { factor: 100, label: " (%)", value: "\u00a0%", digits: 1 },
  "1e-3": { factor: 1000, label: " × 10³", value: "", digits: 2 },
};
const BETTER = { lower: "lower is better", higher: "higher is better", none: "" };

const unitOf = (name) => UNITS[values.metrics[name].unit] || UNITS[""];
const metricLabel = (name) => values.metrics[name].label + unitOf(name).label;
const scaleMetric = (name, x) => unitOf(name).factor * x;

// A value without its unit, such as below a label that has it.
function metricNumber(name, x) {
  const { digits } = unitOf(name), scaled = scaleMetric(name, x);
  return digits === null ? short(scaled) : fixed(scaled, digits);
}

const metricAverage = (name, { mean, std }) =>
  metricNumber(name, mean) + (std === null ? "" : ` ± ${metricNumber(name, std)}`);

function metricTip(name) {
  const { description, direction } = values.metrics[name], better = BETTER[direction];
  return [description, better && `${better[0].toUpperCase()}${better.slice(1)}.`].filter(Boolean).join(" ") || null;
}

// The chart of a metric over the updates, for all runs.
function metricChart(name, options = {}) {
  const { description, direction } = values.metrics[name];
  const series = values.runs.map((run, i) => ({
    name: run.name,
    points: (run.curves[name] || []).map(([step, x]) => [step, scaleMetric(name, x)]),
    ...runStroke(i),
  }));
  const least = Math.min(...series.flatMap((one) => one.points.map((point) => point[1])));
  const range = least < 0 ? { rule: 0 } : { low: 0 };
  return lineChart({ title: metricLabel(name), better: BETTER[direction], note: description, series, ...range, ...options });
}
