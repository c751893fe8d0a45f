// The confusion matrix and the calibration.

// Whose predictions these are, where they are not the final model's.
const heldOutNote = (run) => run.part === "cross-validation"
  && paragraph("quiet", "For labelled images, by trainings without their labels.");

function confusionMatrix(run) {
  const question = "Which classes are confused with each other?";
  if (run.part === null) {
    return section("confusion", "Confusion matrix", question,
      paragraph("quiet", "The run was not evaluated on any images."));
  }
  const totals = run.confusion.map((row) => row.reduce((a, b) => a + b, 0));
  const pairs = run.confusion.flatMap((row, i) => row.flatMap((count, j) => (i !== j && count ? [[count, i, j]] : [])));
  const often = pairs.sort((a, b) => b[0] - a[0]).slice(0, 5).map(([count, i, j]) =>
    h("li", {}, h("strong", {}, run.classes[i]), " predicted as ", h("strong", {}, run.classes[j]),
      `: ${whole(count)} of ${whole(totals[i])}`));
  return section("confusion", "Confusion matrix", question, heldOutNote(run),
    run.classes.length <= 30 && matrixTable(run, totals),
    often.length > 0
      ? [paragraph("note", "Most frequent confusions:"), h("ul", { class: "note" }, often)]
      : h("p", {}, "No image is misclassified."));
}

function matrixTable(run, totals) {
  const shade = (count, i, j) => {
    if (!count) return "0%";
    return `${Math.round(i === j ? (45 * count) / totals[i] : Math.min(60, (240 * count) / totals[i]))}%`;
  };
  const cell = (count, i, j) => h("td", {
    vars: { "--share": shade(count, i, j) }, class: i === j ? "right" : count ? "wrong" : "quiet",
    title: `${run.classes[i]} predicted as ${run.classes[j]}`,
  }, count ? whole(count) : "·");
  return scrollable("Confusion matrix", h("table", { class: "matrix" },
    h("caption", { class: "note" }, "rows: true class; columns: predicted class"),
    h("thead", {}, h("tr", {}, h("td"), run.classes.map((name) => h("th", { scope: "col", title: name }, name)))),
    h("tbody", {}, run.confusion.map((row, i) => h("tr", {}, h("th", { scope: "row", title: run.classes[i] }, run.classes[i]),
      row.map((count, j) => cell(count, i, j)))))));
}

function calibration(run) {
  const panel = run.calibration;
  if (!panel) return null;
  const shown = panel.after || panel.before, gap = shown.confidence - shown.accuracy;
  const ece = `expected calibration error is ${percent(shown.ece)}`;
  const images = shown.bins.reduce((sum, bin) => sum + bin.images, 0);
  const noise = 1.96 * Math.sqrt((shown.accuracy * (100 - shown.accuracy)) / images), few = noise > 1;
  const calibrated = few ? `calibrated on average, as far as ${plural(images, "image")} can tell` : "well calibrated on average";
  const judgement = Math.abs(gap) < Math.max(1, noise) ? calibrated : gap > 0 ? "overconfident" : "underconfident";
  return section("calibration", "Calibration", "Is the model as confident as it is accurate?", heldOutNote(run),
    h("p", {}, `The mean confidence is ${percent(shown.confidence, 1)} and the accuracy ${percent(shown.accuracy, 1)}: `,
      `the model is ${judgement}. Its `, h("span", { id: "ece" }, ece),
      panel.after && ` with a temperature of ${fixed(panel.temperature)}, fitted to ${panel.fitted_to}; `,
      panel.after && `${percent(panel.before.ece)} without`, "."),
    h("figure", { class: "diagram" }, reliabilityDiagram(panel, shown, ece),
      panel.after && legend([
        { colour: "var(--run0)", dash: "", name: "calibrated" }, { colour: "var(--run1)", dash: "", name: "plain softmax" },
      ]),
      h("figcaption", {}, "Height: accuracy among images of that confidence. A calibrated model lies on the dotted line. ",
        "Below: how many images have that confidence.")));
}

function reliabilityDiagram(panel, shown, label) {
  const width = 340, height = 300, left = 40, right = 8, top = 8, bottom = 66;
  const x = (share) => left + (width - left - right) * share, y = (share) => top + (height - top - bottom) * (1 - share);
  const side = (width - left - right) / shown.bins.length, at = (i) => x(i / shown.bins.length) + 1;
  const images = shown.bins.reduce((sum, bin) => sum + bin.images, 0), tall = (bin) => (26 * bin.images) / images;
  const before = panel.before.bins.flatMap((bin, i) => (bin.images ? [`M${at(i)} ${y(bin.accuracy)}h${side - 2}`] : [])).join("");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Reliability diagram: the ${label}` },
    [0, 0.25, 0.5, 0.75, 1].map((share) => [
      s("line", { class: "axis", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      s("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
    ]),
    shown.bins.map((bin, i) => bin.images > 0 && s("rect", {
      x: at(i), width: side - 2, y: y(bin.accuracy), height: y(0) - y(bin.accuracy), fill: "var(--run0)", opacity: 0.55,
    })),
    panel.after && s("path", { d: before, stroke: "var(--run1)", "stroke-width": 2.5, fill: "none" }),
    s("line", { class: "rule", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    shown.bins.map((bin, i) => s("rect", {
      x: at(i), width: side - 2, y: height - 16 - tall(bin), height: tall(bin), fill: "var(--soft)", opacity: 0.5,
    })),
    [0, 0.5, 1].map((share) => s("text", {
      x: x(share), y: height - bottom + 16, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
    }, share === 0.5 ? "confidence 50 %" : `${100 * share} %`)),
    s("text", { x: left, y: height - 2 }, "number of images"));
}
