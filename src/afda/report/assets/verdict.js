// The verdict: the error, the comparison with the baseline, and the error per class.

// What an error is called, and whose mistakes they are.
const PARTS = {
  test: { error: "error on the test set", mistakes: "of the test set" },
  validation: { error: "error on the validation set", mistakes: "of the validation set" },
  "cross-validation": {
    error: "cross-validated error on the labelled images",
    mistakes: "among the labelled ones, by trainings without their labels",
  },
};

function verdict(run) {
  const evaluated = run.part !== null;
  const words = evaluated ? run.verdict.slice(1) : run.verdict;
  return h("section", { id: "verdict", class: "first" },
    h("h1", {}, `${run.data}, ${plural(run.labels, "label")}: ${run.method}`),
    evaluated && h("p", { class: "hero" }, h("span", { class: "number", id: "error" }, percent(run.error)),
      h("span", { class: "of" }, PARTS[run.part].error, h("br"), `95 % interval ${between(run.interval)}`)),
    evaluated && seedAverage(run),
    words.map((sentence) => h("p", { class: "lead" }, unbroken(sentence))),
    run.missing.length > 0 && h("div", { class: "missing", role: "note" }, run.missing.map((m) => h("p", {}, m))),
    facts(run),
    h("h2", { class: "below" }, "Comparison with the labels alone"),
    h("p", { class: "question" }, "Did the unlabelled images help?"),
    baselineComparison(run),
    evaluated && classErrors(run, run.baseline === null ? null : values.runs[run.baseline]));
}

// With several seeds no single one, perhaps the luckiest, stands for all.
function seedAverage(run) {
  const group = values.groups[groupOf(state.chosen)];
  const name = run.error_metric;
  if (group.runs.length < 2 || !group.results[name]) return null;
  const other = run.baseline === null ? null : values.groups[groupOf(run.baseline)];
  const average = (one) => h("strong", {}, `${metricAverage(name, one.results[name])}\u00a0%`);
  return h("p", { class: "lead", id: "seeds" },
    `This is one of ${group.runs.length} seeds; the mean error over all of them is `, average(group),
    other && other.runs.length > 1 && ["; that of the supervised-only baseline is ", average(other)], ".");
}

function facts(run) {
  const results = Object.keys(values.metrics).filter((name) => name in run.results && name !== run.error_metric);
  const rows = [
    ["labelled images", whole(run.labels)],
    ["unlabelled images", whole(run.unlabelled)],
    ...(run.outlier_share > 0.01 ? [["unlike the labelled ones", `about ${percent(100 * run.outlier_share, 0)}`,
      "Unlabelled images that seem to belong to no class; they were drawn less often, and unlike.csv lists them."]] : []),
    ...results.map((name) => [metricLabel(name), metricNumber(name, run.results[name]), metricTip(name)]),
    ["updates", whole(run.steps)],
    ["training time", duration(run.seconds)],
    ["images per second", whole(Math.round(run.images_per_second))],
    ["seed", String(run.seed)],
  ];
  return h("dl", { class: "facts" }, rows.map(([name, value, tip]) =>
    h("div", { title: tip }, h("dt", {}, name), h("dd", {}, value))));
}

function baselineComparison(run) {
  const judgement = run.selection && run.selection.judgement;
  const judged = judgement && h("p", { class: "lead" },
    h("span", { class: `outcome ${judgement.outcome}`, id: "judgement" }, unbroken(judgement.sentence)), " ",
    h("a", { href: "#selection" }, "Model selection"), " has the details.");
  if (run.comparison) {
    const [baseline, outcome, ...test] = run.comparison.sentences;
    return [judged, h("p", { class: "lead" }, unbroken(baseline), " ",
      h("span", { class: `outcome ${run.comparison.outcome}`, id: "outcome" }, unbroken(outcome)), " ",
      h("span", { class: "quiet" }, test.join(" ")))];
  }
  if (judged) return judged;
  if (run.supervised_only) return paragraph("quiet", "This run is itself supervised-only: others are compared with it.");
  if (run.part === null) return paragraph("quiet", "That is unknown: there are no test or validation images to compare on.");
  const option = (text) => h("code", { class: "option" }, text);
  return paragraph("quiet", "That is unknown: there is no supervised-only run with the same labels. Train one with ",
    option("--method supervised --align none"), " and give both runs to ", option("afda report"), ".");
}

function classErrors(run, baseline) {
  const rows = run.classes.map((name, k) => ({ name, ...run.class_errors[k], baseline: baseline && baseline.class_errors[k] }));
  const sorted = rows.length > 20 ? [...rows].sort((a, b) => (b.error ?? -1) - (a.error ?? -1)) : rows;
  const all = { name: "all classes", error: run.error, images: run.images, interval: run.interval, baseline, digits: 2 };
  const ends = [all, ...rows].flatMap((row) => [row.interval, row.baseline && row.baseline.interval]).filter(Boolean);
  const most = Math.min(100, Math.max(5, ...ends.map((interval) => interval[1])));
  return h("div", { class: "below" }, h("h3", {}, "Error per class"),
    baseline && h("ul", { class: "legend", "aria-hidden": "true" },
      h("li", {}, legendDisc(false), "this run"), h("li", {}, legendDisc(true), "supervised-only")),
    classTable([all, ...sorted.slice(0, 20)], baseline, most),
    sorted.length > 20 && h("details", {}, h("summary", {}, `${sorted.length - 20} more classes, with fewer errors`),
      classTable(sorted.slice(20), baseline, most)),
    paragraph("note", "Intervals (Wilson) show what other images of the same kind could have given. ",
      "Other labels or another seed give another model, which they leave out",
      run.part !== "cross-validation" && ": train with several seeds for that", "."));
}

function legendDisc(hollow) {
  const colour = hollow ? "var(--run1)" : "var(--run0)";
  const circle = { cx: 11, cy: 4, r: 3.2, fill: hollow ? "none" : colour, stroke: colour, "stroke-width": 1.3 };
  return s("svg", { viewBox: "0 0 22 8" }, s("circle", circle));
}

function classTable(rows, baseline, most) {
  const head = [["class"], ["images", "roomy"], ["error"], ["95 % interval", "roomy"], ...(baseline ? [["supervised-only"]] : [])];
  const line = (row) => {
    const digits = row.digits || 1;
    const marks = [{ ...row, colour: "var(--run0)" }, { ...row.baseline, colour: "var(--run1)", hollow: true }];
    return h("tr", { class: row.digits ? "mean" : null },
      h("td", {}, row.name), h("td", { class: "roomy" }, whole(row.images)), h("td", {}, percent(row.error, digits)),
      h("td", { class: "roomy" }, between(row.interval)), baseline && h("td", {}, percent(row.baseline.error, digits)),
      h("td", {}, errorBar(marks.filter((mark) => !missing(mark.error)), most)));
  };
  return scrollable("Error per class", h("table", { class: "classes" },
    h("thead", {}, h("tr", {}, head.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)),
      h("th", { scope: "col" }, errorScale(most)))),
    h("tbody", {}, rows.map(line))));
}
