// The table of all runs, with the means over seeds; and how to train a run again.

function runTable() {
  const mixed = new Set(values.runs.map((run) => run.data)).size > 1;
  const metrics = Object.keys(values.metrics).filter((name) => values.runs.some((run) => name in run.results));
  const columns = [
    { head: "run", left: true, cell: (run, i) => chooseButton(i), mean: (group) => `mean of ${group.runs.length} seeds` },
    ...metrics.map((name) => ({
      head: metricLabel(name), tip: metricTip(name),
      cell: (run) => (name in run.results ? metricNumber(name, run.results[name]) : "–"),
      mean: (group) => (group.results[name] ? metricAverage(name, group.results[name]) : "–"),
    })),
    { head: "method", left: true, cell: (run) => pluginNames(run.recipe) },
    { head: "labels", cell: (run) => whole(run.labels) },
    { head: "seed", cell: (run) => String(run.seed) },
    { head: "time", cell: (run) => duration(run.seconds), mean: (group) => duration(group.seconds) },
    mixed && { head: "data", left: true, cell: (run) => run.data },
  ].filter(Boolean);
  const kind = (column) => (column.left ? "left" : null);
  const row = (i) => h("tr", { class: i === state.chosen ? "chosen" : null, "data-run": i },
    columns.map((column) => h("td", { class: kind(column) }, column.cell(values.runs[i], i))));
  const mean = (group) => h("tr", { class: "mean" },
    columns.map((column) => h("td", { class: kind(column) }, column.mean ? column.mean(group) : "")));
  return section("runs", "Comparison of runs", "How do the runs differ?",
    paragraph("quiet", "The rest of the page is about the marked run; choose another here or at the top of the page.",
      values.groups.some((group) => group.runs.length > 1)
        && " Runs that differ in nothing but the seed are averaged, ± their standard deviation."),
    scrollable("Table of runs", h("table", {},
      h("thead", {}, h("tr", {}, columns.map((column) =>
        h("th", { scope: "col", class: kind(column), title: column.tip }, column.head)))),
      h("tbody", {}, values.groups.map((group) => [group.runs.map(row), group.runs.length > 1 && mean(group)])))));
}

const pluginNames = (recipe) => [...recipe.method, recipe.align].filter(Boolean).map((part) => part.name).join("+");

function chooseButton(i) {
  const choose = () => { state.chosen = i; draw(); document.getElementById("verdict").scrollIntoView(); };
  return h("button", { type: "button", onclick: choose, "aria-label": `show ${values.runs[i].name}` }, values.runs[i].name);
}

function reproduction(run) {
  const { data, notes, ...machine } = run.environment;
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const table = (pairs) => h("div", { class: "scroll" }, h("table", {}, h("tbody", {},
    pairs.map(([key, value]) => h("tr", {}, h("td", {}, key), h("td", { class: "left" }, text(value)))))));
  return section("reproduce", "Reproducing this run", "How can I train the same model again?",
    h("pre", { class: "command" }, run.command),
    paragraph("quiet",
      "The same recipe on the same data, with as many threads of a similar CPU, gives the same weights."),
    h("details", {}, h("summary", {}, "Recipe"), h("pre", {}, JSON.stringify(run.recipe, null, 2))),
    h("details", {}, h("summary", {}, "Environment"), table(Object.entries(machine)),
      (notes || []).map((note) => paragraph("note", note))),
    h("details", {}, h("summary", {}, "Fingerprint of the data"), paragraph("note", "SHA-256 of each file of the data."),
      table(Object.entries(data || {}))),
    h("p", { class: "note below" }, `Written by afda ${values.version}. This page is one file; it fetches nothing.`));
}
