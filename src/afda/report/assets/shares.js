// Class shares: those of the labels beside those that the model estimates for the unlabelled images.

const MOST_SHARES = 30;

function classShares(run) {
  const panel = run.shares;
  if (!panel) return null;
  const rows = run.classes.map((name, k) => ({
    name, labels: panel.labels[k], labelled: 100 * panel.labelled[k], predicted: 100 * panel.predicted[k],
    estimated: 100 * panel.estimated[k],
  }));
  const change = (row) => Math.abs(row.predicted - row.labelled);
  const sorted = rows.length > MOST_SHARES ? [...rows].sort((a, b) => change(b) - change(a)) : rows;
  const most = Math.max(...rows.flatMap((row) => [row.labelled, row.predicted, row.estimated])) * 1.02;
  const distance = percent(100 * panel.distance, 0);
  return section("shares", "Class shares", "Do the unlabelled images have the classes of the labels?",
    h("p", { id: "distance" }, h("strong", {}, distance), " of the predictions for the unlabelled images would have to change ",
      "class to have the class shares of the labels (total variation distance)."),
    panel.doubtful && h("div", { class: "missing", role: "note" }, h("p", {},
      "The shares differ much. Either the unlabelled images really have other shares, or the predictions are skewed. ",
      run.recipe.align && "The alignment assumes similar shares, so it is doubtful here. ",
      run.part === "cross-validation" && "The error is estimated on labelled images, so it is doubtful for the unlabelled ones. ",
      "Look at some of the images that are assigned to the classes that gained most.")),
    h("ul", { class: "legend", "aria-hidden": "true" },
      h("li", {}, legendDisc(false), "predicted for unlabelled images"), h("li", {}, legendDisc(true), "labels")),
    sharesTable(sorted.slice(0, MOST_SHARES), most),
    sorted.length > MOST_SHARES && h("details", {},
      h("summary", {}, `${sorted.length - MOST_SHARES} more classes, with smaller differences`),
      sharesTable(sorted.slice(MOST_SHARES), most)),
    paragraph("note", "Predicted: the mean of the calibrated probabilities",
      panel.examined < panel.unlabelled && ` for ${whole(panel.examined)} of ${whole(panel.unlabelled)} unlabelled images`,
      ".", h("span", { class: "roomy" }, " Corrected: an estimate that allows for shares other than those of the labels, ",
        "if the classes look the same in both sets (expectation maximisation, Saerens et al., 2002).")));
}

function sharesTable(rows, most) {
  const head = [["class"], ["labels", "roomy"], ["labelled"], ["predicted"], ["corrected", "roomy"]];
  const line = (row) => h("tr", {}, h("td", {}, row.name), h("td", { class: "roomy" }, whole(row.labels)),
    h("td", {}, percent(row.labelled, 1)), h("td", {}, percent(row.predicted, 1)),
    h("td", { class: "roomy" }, percent(row.estimated, 1)),
    h("td", {}, errorBar([
      { error: row.predicted, colour: "var(--run0)" }, { error: row.labelled, colour: "var(--run1)", hollow: true },
    ], most)));
  return scrollable("Class shares", h("table", { class: "shares" },
    h("thead", {}, h("tr", {}, head.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)),
      h("th", { scope: "col" }, errorScale(most)))),
    h("tbody", {}, rows.map(line))));
}
