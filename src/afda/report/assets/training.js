// Training curves, the discriminator and the risk bound.

// Metrics with a panel of their own, which are not repeated among the training curves.
const DISCRIMINATOR = "discriminator_accuracy";

function training(run) {
  const isLogged = (name) => values.runs.some((one) => name in one.curves);
  const logged = Object.keys(values.metrics).filter((name) => name !== DISCRIMINATOR && isLogged(name));
  const terms = logged.filter((name) => values.metrics[name].term);
  const others = logged.filter((name) => !values.metrics[name].term);
  const groups = values.groups.map((group, g) => ({
    name: group.method + (group.runs.length > 1 ? `, ${group.runs.length} seeds` : ""), ...groupStroke(g),
  }));
  const charts = (title, names) => names.length > 0 && [
    h("h3", { class: "below" }, title), h("div", { class: "charts" }, names.map((name) => metricChart(name))),
  ];
  return section("training", "Training curves", "How did the training progress?",
    run.warnings.length > 0 && h("div", { class: "missing", role: "note", id: "warnings" },
      run.warnings.map((warning) => h("p", {}, warning))),
    several && legend(groups),
    charts("Loss terms", terms), charts("Metrics", others));
}

function discriminator(run) {
  const panel = run.discriminator;
  const none = run.recipe.align
    ? "The alignment of this run has no discriminator." : "This run has no alignment, and so no discriminator.";
  return section("discriminator", "Discriminator", "Can labelled and unlabelled features still be told apart?",
    panel
      ? h("div", { class: "light", id: "light" }, h("span", { class: `lamp ${panel.light}`, "aria-hidden": "true" }), h("div", {},
        h("p", {}, h("strong", { class: panel.light }, `Discriminator: ${panel.state}. `),
          `Its accuracy towards the end is ${percent(100 * panel.accuracy, 1)}; `,
          `50\u00a0% is chance, however few images of a batch are labelled. ${panel.explanation}`),
        paragraph("quiet", panel.advice)))
      : paragraph("quiet", none),
    DISCRIMINATOR in values.metrics && h("div", { class: "charts" }, discriminatorChart()));
}

// Chance is dotted, healthy accuracies are shaded.
function discriminatorChart() {
  const scale = (share) => scaleMetric(DISCRIMINATOR, share);
  return metricChart(DISCRIMINATOR, {
    title: `Accuracy of the discriminator${unitOf(DISCRIMINATOR).label}`,
    rule: scale(0.5), band: [scale(0.42), scale(0.68)], low: scale(0.3), high: scale(1), note: "Dotted: chance. Shaded: healthy.",
  });
}

const BOUND = {
  features_true: "features, true classes",
  labels_true: "labels, true classes",
  features_predicted: "features, predicted classes",
  labels_predicted: "labels, predicted classes",
  gap: "difference of the risks",
};

function riskBound(run) {
  const series = Object.entries(BOUND).map(([key, name], i) =>
    ({ name, points: run.bound_curves[key] || [], ...groupStroke(i) }));
  const chart = lineChart({ title: "Terms of the bound", log: true, key: true, series });
  const end = run.bound;
  return section("bound", "Risk bound (Theorem 1)", "How far apart can the losses on labelled and unlabelled images be?",
    end && h("p", {}, `After training the four terms add up to ${short(end.total)}; `,
      `the difference of the risks is ${short(end.gap)}, `,
      `and the part that the paper’s approximation drops is ${short(end.remainder)}.`),
    chart ? h("div", { class: "charts" }, chart)
      : h("p", { class: "quiet" }, "The terms need the true labels of the unlabelled images, which only benchmarks have."));
}
