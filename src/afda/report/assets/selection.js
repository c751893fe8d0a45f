// Model selection: the candidates that were compared by cross-validation.

function modelSelection(run) {
  const panel = run.selection;
  if (!panel) return null;
  const ends = panel.candidates.flatMap((one) => (one.interval ? [one.interval[1]] : []));
  const most = Math.min(100, Math.max(5, ...ends)), trained = ends.length > 0;
  const dropped = panel.candidates.some((one) => one.trainings < Math.max(...panel.candidates.map((other) => other.trainings)));
  const head = [["candidate"], ["trainings", "roomy"], ["error"], ["95 % interval", "roomy"]];
  const line = (one) => h("tr", { class: one.name === panel.chosen ? "chosen" : null },
    h("td", { class: "candidate" }, h("strong", {}, one.name), one.name === panel.chosen && " (chosen)",
      h("span", { class: "name" }, one.summary)),
    h("td", { class: "roomy" }, whole(one.trainings)), h("td", {}, percent(one.error, 1)),
    h("td", { class: "roomy" }, between(one.interval)),
    trained && h("td", {}, !missing(one.error)
      && errorBar([{ ...one, colour: one.uses_unlabelled ? "var(--run0)" : "var(--run1)" }], most)));
  return section("selection", "Model selection", "Which method suits these labels best?",
    h("p", {}, h("strong", { id: "chosen" }, panel.chosen), ` was taken: ${unbroken(panel.reason)}.`),
    panel.judgement && h("p", {}, h("span", { class: `outcome ${panel.judgement.outcome}` }, unbroken(panel.judgement.sentence))),
    trained && h("ul", { class: "legend", "aria-hidden": "true" },
      h("li", {}, dot("var(--run0)"), "uses the unlabelled images"), h("li", {}, dot("var(--run1)"), "labels alone")),
    scrollable("Candidates", h("table", { class: "candidates" },
      h("thead", {}, h("tr", {}, head.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)),
        trained && h("th", { scope: "col" }, errorScale(most)))),
      h("tbody", {}, panel.candidates.map(line)))),
    trained && paragraph("note", "Each training lacked the labels of one of ", plural(panel.folds, "fold"),
      " and was tested on them",
      panel.steps_share < 1 && `; it had ${percent(100 * panel.steps_share, 0)} of the updates of the final training`, ". ",
      dropped && "Candidates with fewer trainings were clearly worse, or the time was up. ",
      "The lowest of several errors is a little too low."));
}

function dot(colour) {
  return s("svg", { viewBox: "0 0 22 8" }, s("circle", { cx: 11, cy: 4, r: 3.2, fill: colour }));
}
