// The values of the page, elements, and numbers as text.
// Names of files and classes are always set as text, never as markup.

const values = JSON.parse(document.getElementById("values").textContent);
const several = values.runs.length > 1;
const state = { chosen: values.lead, repaint: () => {} };

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "vars") for (const [name, v] of Object.entries(value)) element.style.setProperty(name, v);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An HTML element, and an SVG element.
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

// A section: a conventional heading, and below it the plain question that the section answers.
function section(id, title, question, ...children) {
  return h("section", { id }, h("h2", {}, title), question && h("p", { class: "question" }, question), children);
}

const paragraph = (kind, ...children) => h("p", { class: kind }, children);

function scrollable(label, ...children) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, children);
}

// Numbers

const whole = (n) => n.toLocaleString("en-US");
const missing = (x) => x === null || x === undefined;
const minus = (text) => text.replace(/^-/, "−");
const fixed = (x, digits = 2) => minus(x.toFixed(digits));
const percent = (x, digits = 2) => (missing(x) ? "–" : `${x.toFixed(digits)}\u00a0%`);
const between = (pair) => (pair ? `${pair[0].toFixed(1)} to ${pair[1].toFixed(1)}\u00a0%` : "–");
const plural = (n, one) => `${whole(n)} ${one}${n === 1 ? "" : "s"}`;
// Keep a number and its unit on one line.
const unbroken = (sentence) => sentence.replaceAll(" %", "\u00a0%");

function duration(seconds) {
  if (missing(seconds)) return "–";
  if (seconds < 100) return `${seconds.toFixed(0)} s`;
  return seconds < 6000 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// A number with three significant digits.
function short(x) {
  const size = Math.abs(x);
  if (x === 0) return "0";
  if (size >= 1000 && size < 1e6) return minus(whole(Math.round(x)));
  if (size < 0.001 || size >= 1e6) return minus(x.toExponential(1).replace(".0e", "e").replace("e+", "e"));
  return minus(String(Number(x.toPrecision(3))));
}

// Colour and stroke of a run: those of its group.
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "10 4", "4 2 1 2"];
const groupOf = (i) => values.groups.findIndex((group) => group.runs.includes(i));
const groupStroke = (g) => ({ colour: `var(--run${g % 6})`, dash: DASHES[g % DASHES.length] });
const runStroke = (i) => ({ ...groupStroke(groupOf(i)), thin: i !== state.chosen });
