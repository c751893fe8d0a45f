// The page: its sections in order, the choice of the run, and the colour scheme.

const root = document.getElementById("page");

function draw() {
  const run = values.runs[state.chosen];
  state.repaint = () => {};
  const sections = [
    several && runTable(), modelSelection(run), training(run), discriminator(run), riskBound(run), embedding(run),
    classShares(run), confusionMatrix(run), calibration(run), mistakes(run), labelNext(), reproduction(run),
  ].filter(Boolean);
  const links = sections.map((one) => h("a", { href: `#${one.id}` }, one.querySelector("h2").textContent));
  const top = verdict(run);
  top.querySelector(".facts").after(h("nav", { "aria-label": "Sections" }, links));
  root.replaceChildren(top, ...sections);
  const select = document.getElementById("run");
  if (select) select.value = String(state.chosen);
}

function chooseRun(event) {
  const y = window.scrollY;
  state.chosen = Number(event.target.value);
  draw();
  window.scrollTo(0, y);
}

if (several) {
  document.getElementById("chooser").append(h("label", { for: "run" }, "Run"), h("select", { id: "run", onchange: chooseRun },
    values.runs.map((run, i) => h("option", { value: i }, `${run.name}: ${run.method}`))));
}

const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
const themeButton = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";

function applyTheme() {
  const other = isDark() ? "light" : "dark";
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `switch to ${other} colours`);
  state.repaint();
}

themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  applyTheme();
});
prefersDark.addEventListener("change", applyTheme);
draw();
applyTheme();
